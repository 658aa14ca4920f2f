"""awk programs and sed scripts: words are no commands, commands are seen."""

from __future__ import annotations

import pytest

from hutch.policy.awk import check_awk
from hutch.policy.sed import check_sed
from hutch.policy.verdict import Refused


@pytest.mark.parametrize(
    "program",
    [
        '{ print "system(1) | getline" }',
        "/system|exec/ { n++ }",
        "{ systems++ }",
        "{ a = $1 / 2; b = $2 / 3 }",
        "{ print a || b }",
        '{ gsub(/[|/"]/, "") }',
        "# system(x) | sh\n{ print }",
        '{ print (a) / 2, "x|y", (b) / 3 }',
        "BEGIN { while ((getline line < f) > 0) n++ }",
        '$1 ~ "a|b"',
        '{ x = "a\\"|b" }',
        '{ sub(/\\//, "|") }',
        "{ print a[1] / 2 / 3 }",
        "{ print $NF/2 }",
        "!/^#/ && NF",
        "/[[:space:]]/ { print length($0) / 2 }",
        '{ gsub(/[\\[\\]]/, "|") }',
    ],
)
def test_awk_programs_that_start_nothing(program: str) -> None:
    check_awk([program, "file"], True)


@pytest.mark.parametrize(
    "program",
    [
        'BEGIN { system("x") }',
        "BEGIN { system(x) }",
        '{ print | "x" }',
        '{ "x" | getline }',
        '{ print |& "x" }',
        'BEGIN { if (1) /"/ ; system("x") ; /"/ }',
        "/x/ { system($0) }",
        '{ a = 1 / 2; system("x"); b = 1 / 2 }',
        "BEGIN { @f(1) }",
        '@include "x"',
        '{ gsub(/[/]/, ""); system("]/") }',
        'BEGIN { while (0) /"/; system("/") }',
        '{ print a |\n"x" }',
        'function f(x) { return /a/ } { f(1) | "sh" }',
        'BEGIN { getline /system("x")/ 1 }',
        'BEGIN { x = length /"/; system("x") #"/\n}',
        'BEGIN { $/"/; system("x") #"/\n}',
        '/[[:alpha:]/]"/; system("x") #"/',
        '/[\\]"/; system("x") #]/',
        '{ switch (1) { case /"/: system("x") #"/\n} }',
    ],
)
def test_awk_programs_that_start_commands(program: str) -> None:
    with pytest.raises(Refused):
        check_awk([program], True)


@pytest.mark.parametrize(
    "arguments",
    [["-F", ",", "{print}"], ["-F,", "-v", "x=system(1)|y", "{print}"], ["-vx=1", "--", "{print}"], ["--version"]],
)
def test_awk_options_are_passed_over(arguments: list[str]) -> None:
    check_awk(arguments, True)


@pytest.mark.parametrize(
    "script",
    [
        "s/a/b/g",
        "s|e|w|",
        "s/e/e/",
        "/e/d",
        "/e/!d",
        "1,/e/p",
        "$!N;s/\\n/ /",
        ":e;N;$!be",
        "y/ew/we/",
        "a e text",
        "i\\\ne id",
        "c\\\ne\\\ne",
        "s/[/e]/x/",
        "s,[,],e,",
        "\\,e,d",
        "1~2d",
        "/a/,+3p",
        "/a/I,~4{p;q}",
        "2q5",
        "s/a\\/e/b/2p",
        "# e id\np",
        "r e",
        "s/x/\\\n/;p",
        "/^$/{N;/^\\n$/D}",
        "w out",
        "s/a/b/w out",
        "s/\0/\0/g",
        "\0,\0p",
        "$d",
        "l 5;=",
        "v;p",
        "v 4.2\np",
        "b end;p;:end",
    ],
)
def test_sed_scripts_that_start_nothing(script: str) -> None:
    check_sed([script, "file"], True)


@pytest.mark.parametrize(
    "script",
    [
        "e",
        "e id",
        "1e",
        "$!e",
        "/x/e id",
        "1,2 e",
        "s/a/b/e",
        "s/a/b/ge",
        "s/a/b/2pe",
        "p;e",
        "{e}",
        "p\ne",
        "y/a/b/;e",
        "a text\ne",
        "i\\\ntext\ne",
        ":x\ne",
        "bx;e",
        "s/[/]/x/;e",
        "s/[]/]/x/;e",
        "y/[/]/;s/a/b/;e/",
        "w out\ne",
        "}e",
        "# c\ne",
        "r f\ne",
        "v;e id",
        "v 4.2;e id",
        ":a\te id",
        "b #x;s/a/\ne id;/x/",
    ],
)
def test_sed_scripts_that_start_commands(script: str) -> None:
    with pytest.raises(Refused):
        check_sed([script], True)


@pytest.mark.parametrize(
    ("arguments", "fine"),
    [
        (["-n", "-e", "p", "-e", "s/a/b/"], True),
        (["-ne", "p"], True),
        (["-i.bak", "s/a/b/", "f"], True),
        (["-E", "--quiet", "p"], True),
        (["--expression=e"], False),
        (["-n", "-e", "p", "-es/a/b/e"], False),
        (["p", "-e", "e"], False),
        (["-f", "x"], False),
        (["--fi=x"], False),
        (["-nf", "x"], False),
        (["--", "e"], False),
        (["-l", "5", "p"], True),
        (["\0"], False),
    ],
)
def test_sed_options(arguments: list[str], fine: bool) -> None:
    if fine:
        check_sed(arguments, True)
        return
    with pytest.raises(Refused):
        check_sed(arguments, True)
