"""What the policy says, and how it says it."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from hutch.model.errors import CommandRejected, error_from_code
from hutch.policy import OPEN, STRICT, Judge, judge
from hutch.policy import check as check_command


@pytest.mark.parametrize("profile", [STRICT, OPEN], ids=["strict", "open"])
@pytest.mark.parametrize(
    "command",
    ["", " \n\t", "echo a\0b", 'echo "open', "if then", "ls |", "(", ")", "echo $(ls", "{ ls", "echo \ud800",
     "echo " + "a" * 131_067],
)  # fmt: skip
def test_what_no_profile_lets_through(profile: object, command: str) -> None:
    with pytest.raises(CommandRejected) as caught:
        check_command(command, STRICT if profile is STRICT else OPEN)
    assert caught.value.details["reason"]


def test_the_longest_command_passes_and_one_more_byte_names_the_remedy() -> None:
    assert judge("echo " + "a" * 131_066, STRICT).allowed
    verdict = judge("echo " + "a" * 131_067, OPEN)
    assert "131,072" in verdict.reason
    assert "upload" in verdict.hint


def test_a_refusal_names_the_word_the_reason_and_what_is_allowed() -> None:
    with pytest.raises(CommandRejected) as caught:
        check_command("ls && rm -rf data", STRICT)
    error = caught.value
    assert isinstance(error, ValueError)
    assert error.details["word"] == "rm"
    assert "jq" in error.details["allowed"]
    assert "files.remove" in error.details["hint"]
    for part in ("'rm'", error.details["reason"], error.details["hint"], "Allowed:", " jq "):
        assert part in str(error)
    assert isinstance(error_from_code(error.code, error.message, error.details), CommandRejected)


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("rm x", "files.remove"), ("mv a b", "files.move"), ("curl http://h", "upload_file"), ("cp a b", "cat"),
        ("wget h", "upload_file"), ("find . -delete", "files.remove"), ("cat f | xargs ls", "while read"),
        ("mapfile -t a < f", "while read"), ("timeout 5 ls", "timeout="), ("sleep 1 && nohup ls", "wait"),
    ],
)  # fmt: skip
def test_a_refusal_says_what_to_do_instead(command: str, hint: str) -> None:
    assert hint in judge(command, STRICT).hint


def test_forbidden_names_are_only_judged_where_a_command_name_stands() -> None:
    for command in ('grep "rm" notes.txt', "echo rm mv dd", "ls rm", "cat < rm", "x=rm; echo $x", "echo a # rm b"):
        assert judge(command, STRICT).allowed, command


def test_open_lets_everything_run_that_bash_can_read() -> None:
    for command in ("rm -rf x", "eval $x", "$cmd", "find . -exec rm {} +", "curl h | sh", "for x in a; { ls; }"):
        assert judge(command, OPEN).allowed, command


def test_open_leaves_gaps_of_the_grammar_to_bash() -> None:
    for command in ("echo ${a~~}", "echo $(( ))", "((ls);(ls))", "select x in a; { ls; }"):
        subprocess.run(["bash", "-n", "-c", command], check=True, timeout=30)
        assert judge(command, OPEN).allowed, command


def test_both_spellings_of_the_system_folders_name_an_allowed_program() -> None:
    assert judge("/usr/bin/jq . f | /bin/cat", STRICT).allowed
    assert not judge("/usr/bin/git log", STRICT).allowed


def test_a_judge_remembers_only_so_much_and_says_the_same_again() -> None:
    judge_ = Judge(STRICT)
    first = judge_.judge("rm x")
    assert judge_.judge("rm x") is first
    for number in range(1000):
        judge_.judge(f"echo {number}")
    assert len(judge_._recent) <= 256
    assert judge_.judge("rm x") == first
    judge_.judge("echo " + "a" * 100_000)
    assert sum(map(len, judge_._recent)) < 100_000


def test_threads_may_share_a_judge() -> None:
    judge_ = Judge(STRICT)
    wrong: list[str] = []

    def work(number: int) -> None:
        for turn in range(100):
            good, bad = f"echo {number} {turn % 50} | sort", f"echo {turn % 50}; rm {number}"
            wrong.extend(text for text, said in ((good, True), (bad, False)) if judge_.judge(text).allowed is not said)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


def test_the_parser_is_loaded_by_the_first_judgement() -> None:
    code = (
        "import sys; from hutch.policy import STRICT, judge; assert 'tree_sitter' not in sys.modules;"
        "judge('ls', STRICT); assert 'tree_sitter' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("command", "allowed"),
    [
        ("f() { ls; }; f", True), ("f; f() { ls; }", False), ("main() { helper; }; helper() { ls; }; main", True),
        ("g() { perl; }; g; perl() { ls; }", False), ("if true; then perl() { ls; }; fi; perl", False),
        ("a() { b; }; b() { a; }; a", True), ("jq() { ls; }; jq", False), ("rm() { ls; }; rm", False),
    ],
)  # fmt: skip
def test_a_function_must_surely_be_there_when_it_is_called(command: str, allowed: bool) -> None:
    assert judge(command, STRICT).allowed is allowed


@pytest.mark.parametrize(
    ("command", "allowed"),
    [
        ("find . -name '*.py' -exec grep -l main {} +", True), ("find . -exec cat {} \\;", True),
        ("find . -exec rm {} \\;", False), ("find . -exec sed -i 's/a/b/' {} +", True),
        ("find . -exec sed 's/a/b/e' {} +", False), ("find . -exec eval x \\;", False), ("find . -exec f {} +", False),
        ('d=src; find "$d" -name x', True), ("find . -type f -name '-delete.txt'", True),
    ],
)  # fmt: skip
def test_commands_that_find_starts_are_judged(command: str, allowed: bool) -> None:
    assert judge(command, STRICT).allowed is allowed
