"""Arguments by which an allowed program starts another one, takes code from elsewhere, or writes files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from hutch.policy.awk import check_awk
from hutch.policy.sed import check_sed
from hutch.policy.values import UNKNOWN
from hutch.policy.verdict import Refused

Check = Callable[[Sequence[str], bool], None]  # the arguments; whether files may be written
_DURATION = re.compile(r"[0-9.]+[smhd]?")
_CLOCK = re.compile(r"\d{8,12}(?:\.\d\d)?")
_DATE_VALUED = re.compile(r"-[Ru]*[dfr]|--(?:d|da|dat|date|f|fi|fil|file|ref\w*)")
_FIND_EXEC = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_FIND_WRITE = ("-fprint", "-fls")


def _shown(argument: str) -> str:
    return argument[:60].replace(UNKNOWN, "…")


def find_commands(arguments: Sequence[str]) -> Iterator[list[str]]:
    """The commands after -exec and its kin."""
    index = 0
    while index < len(arguments):
        if arguments[index].lstrip(UNKNOWN) in _FIND_EXEC:
            start = index = index + 1
            while index < len(arguments) and arguments[index] != ";":
                if arguments[index] == "+" and arguments[index - 1] == "{}":
                    break
                index += 1
            yield list(arguments[start:index])
        index += 1


def check_find(arguments: Sequence[str], may_write: bool) -> None:
    for argument in arguments:
        if argument.lstrip(UNKNOWN) == "-delete":
            raise Refused("-delete", "it removes files", "remove files with files.remove(path)")
        if argument.startswith(_FIND_WRITE) and not may_write:
            raise Refused(argument, "it writes a file, which this profile does not allow")
        if argument.startswith("-") and UNKNOWN in argument:
            raise Refused(_shown(argument), "an expansion makes part of this option", "write the option out")


def check_sort(arguments: Sequence[str], may_write: bool) -> None:
    for argument in arguments:
        if argument.lstrip(UNKNOWN).startswith("--co"):
            raise Refused(_shown(argument), "sort would start this program", "leave the option out")
        if not may_write and re.match(r"-[a-zA-Z]*o|--o", argument):
            raise Refused(_shown(argument), "it writes a file, which this profile does not allow")
        if argument.startswith("-") and UNKNOWN in argument and argument[1:2] in ("-", UNKNOWN):
            raise Refused(_shown(argument), "an expansion makes part of this option", "write the option out")


def _short_options(argument: str, valued: str) -> str:
    """The letters of a cluster of short options, up to the first that takes the rest as its value."""
    if not argument.startswith("-") or argument.startswith("--"):
        return ""
    letters = ""
    for letter in argument[1:]:
        letters += letter
        if letter in valued:
            break
    return letters


def check_date(arguments: Sequence[str], may_write: bool) -> None:
    skip = False
    for argument in arguments:
        letters = "" if skip else _short_options(argument, "dfrI")
        sets = "s" in letters or argument.startswith("--s") or (not skip and _CLOCK.fullmatch(argument) is not None)
        skip = not skip and _DATE_VALUED.fullmatch(argument) is not None
        if sets:
            raise Refused(_shown(argument), "it sets the clock", "show another time with date -d")


def check_file(arguments: Sequence[str], may_write: bool) -> None:
    skip = False
    for argument in arguments:
        letters = "" if skip else _short_options(argument, "eFfmP")
        skip = not skip and argument in ("-e", "-F", "-f", "-P")
        bad_long = ("--co", "--ma", "--un", "--no-s", "--lis")
        if set(letters) & set("CmzZS") or argument.startswith(bad_long):
            hint = "leave the option out"
            raise Refused(_shown(argument), "file would compile, load or start something for it", hint)


def check_diff(arguments: Sequence[str], may_write: bool) -> None:
    for argument in arguments:
        if "l" in _short_options(argument, "CDFILSUWxX") or argument.startswith("--pag"):
            raise Refused(_shown(argument), "diff would start pr for it", "leave the option out")


def check_tee(arguments: Sequence[str], may_write: bool) -> None:
    if not may_write and any(not argument.startswith("-") and argument != "/dev/null" for argument in arguments):
        raise Refused("tee", "it writes a file, which this profile does not allow")


def check_uniq(arguments: Sequence[str], may_write: bool) -> None:
    operands = [argument for argument in arguments if not argument.startswith("-") or argument == "-"]
    if not may_write and len(operands) > 1 and operands[-1] != "-":
        raise Refused(_shown(operands[-1]), "uniq writes its second file, which this profile does not allow")


CHECKS: Mapping[str, Check] = {
    "find": check_find,
    "sort": check_sort,
    "awk": check_awk,
    "gawk": check_awk,
    "mawk": check_awk,
    "sed": check_sed,
    "date": check_date,
    "file": check_file,
    "diff": check_diff,
    "tee": check_tee,
    "uniq": check_uniq,
}


def wrapped_command(arguments: Sequence[str]) -> list[str]:
    """The command behind `env`, `timeout`, `xargs` and the like: their options, settings and durations passed over."""
    for index, argument in enumerate(arguments):
        if argument.startswith("-") or _DURATION.fullmatch(argument) or re.match(r"\w+=", argument):
            continue
        return list(arguments[index:])
    return []
