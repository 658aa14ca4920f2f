"""What bash really starts: accepted commands run in a bare bubblewrap where no program is on the PATH, and every name
bash looks for is written down. None may lie outside the list, however the text was damaged before."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from hutch.policy import STRICT, judge
from tests.hostile import policy_corpora as corpora

COMMANDS = [*corpora.ordinary(), *(text for row in corpora.hostile() for text in row.spellings)]
HOSTILE = [text for row in corpora.hostile() for text in row.spellings]
PIECES = [
    "'",
    '"',
    "`",
    "$",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "<",
    ">",
    "|",
    "&",
    ";",
    "#",
    "\n",
    " ",
    "\\",
    "\t",
    "=",
    "!",
    "*",
    "$(",
    "${",
    "<<E\n",
    "\nE\n",
    "<<<",
    "<(",
    ">(",
    "((",
    "))",
    "$((",
    "[[ ",
    " ]]",
    "\\\n",
    "$'",
    '$"',
    "rm x",
    ";rm x;",
    "\nrm x\n",
    "\"${x:-'",
    "'}\"",
    "|&",
    "&&",
    "||",
    ";;",
    "esac",
    "fi",
    "done",
    "do ",
    "then ",
    "case x in ",
    "if ",
    "for i in a; do ",
    "function f ",
    "f() ",
    "time ",
    "! ",
    "<<-'E'\n",
    '<<"E" ',
    "\r",
    "本",
    "x=",
    "A=$ ",
]
FRAMES = ['"%s"', "$(%s)", "`%s`", "'%s'", "(%s)", "{ %s; }", '"$(%s)"', "cat <<E\n%s\nE", "${x:-%s}", '"${x:-%s}"']

# Each command runs twice: what is missing succeeds, and what is missing fails.
DRIVER = r"""
command_not_found_handle() { echo "$1" >&9; return "$HUTCH_ANSWER"; }
export -f command_not_found_handle
for file in /commands/*; do
  for answer in 0 1; do
    IFS= read -r -d '' command < "$file"
    cd "$(/usr/bin/mktemp -d)"
    PATH=/nowhere HUTCH_ANSWER=$answer /usr/bin/timeout -k 0.1 1 /usr/bin/bash -c "$command" \
      9>>"/names/${file##*/}" </dev/null >/dev/null 2>&1
  done
done
"""


def damaged(dice: random.Random) -> str:
    text = dice.choice(COMMANDS)
    for _ in range(dice.choice([1, 1, 2, 2, 3, 4])):
        at, kind = dice.randrange(len(text) + 1), dice.random()
        if kind < 0.4:
            text = text[:at] + dice.choice(PIECES) + text[at:]
        elif kind < 0.55:
            text = text[:at] + text[at + dice.randrange(1, 4) :]
        elif kind < 0.75:
            other = dice.choice(COMMANDS)
            text = text[:at] + other[dice.randrange(len(other) + 1) :]
        elif kind < 0.9:
            text += dice.choice([";", "\n", "|", "&&", " ", '"', "'"]) + dice.choice(HOSTILE)
        else:
            start, end = sorted((at, dice.randrange(len(text) + 1)))
            text = text[:start] + dice.choice(FRAMES) % text[start:end] + text[end:]
    return text


def names_bash_looks_for(commands: list[str], folder: Path) -> list[set[str]]:
    inside, names = folder / "commands", folder / "names"
    inside.mkdir()
    names.mkdir()
    (folder / "driver").write_text(DRIVER)
    for number, command in enumerate(commands):
        (inside / f"{number:05}").write_text(command, encoding="utf-8", newline="")
    binds = ["--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib"]
    binds += ["--symlink", "usr/lib64", "/lib64", "--tmpfs", "/tmp", "--dev", "/dev", "--proc", "/proc"]
    binds += ["--bind", str(names), "/names", "--ro-bind", str(inside), "/commands"]
    binds += ["--ro-bind", str(folder / "driver"), "/driver", "--clearenv", "--unshare-all", "--die-with-parent"]
    subprocess.run(["bwrap", *binds, "/usr/bin/bash", "/driver"], check=False, timeout=110, capture_output=True)
    return [set((names / f"{number:05}").read_text(errors="replace").split()) for number in range(len(commands))]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_accepted_text_starts_what_is_not_on_the_list(tmp_path: Path, seed: int) -> None:
    assert shutil.which("bwrap"), "bubblewrap is missing: apt-get install bubblewrap"
    dice = random.Random(seed)
    texts = [text for text in (damaged(dice) for _ in range(2500)) if judge(text, STRICT).allowed]
    found = names_bash_looks_for(texts, tmp_path)
    assert sum(bool(names) for names in found) > len(texts) / 3, "bash ran nothing: the test proves nothing"
    beyond = {
        text: names - STRICT.programs for text, names in zip(texts, found, strict=True) if names - STRICT.programs
    }
    assert beyond == {}


def test_ordinary_commands_start_only_what_is_on_the_list(tmp_path: Path) -> None:
    commands = [*corpora.ordinary(), *corpora.held_out().ordinary]
    found = names_bash_looks_for(commands, tmp_path)
    assert set().union(*found) <= STRICT.programs
    assert sum(bool(names) for names in found) > len(commands) / 2


def test_a_name_that_is_not_on_the_list_would_be_seen(tmp_path: Path) -> None:
    found = names_bash_looks_for(["ls | rm x", 'echo "$(mv a b)"', "false || chmod x"], tmp_path)
    assert found == [{"ls", "rm"}, {"mv"}, {"chmod"}]
