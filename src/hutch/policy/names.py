"""Names with a meaning of their own: what to use instead of a program that is not there, and variables that make
other programs run code."""

from __future__ import annotations

import re
from collections.abc import Mapping

WRAPPERS = frozenset(
    "xargs env timeout nice nohup setsid stdbuf ionice time command exec builtin flock watch sudo doas busybox".split()
)
# They run or rewrite other commands, so judging the text in front of us would mean nothing.
REFUSED_BUILTINS: Mapping[str, str] = {
    "eval": "write the command itself",
    "exec": "write the command itself; redirect it alone",
    "source": "write the commands themselves",
    ".": "write the commands themselves",
    "command": "write the command itself",
    "builtin": "write the command itself",
    "enable": "",
    "hash": "",
    "trap": "put the last step at the end of the command",
    "alias": "define a function",
    "ulimit": "limits belong to the sandbox",
    "kill": "signal a background process through its handle",
    "coproc": "use a pipe or <(…)",
    "readonly": "assign it without readonly",
    "typeset": "use declare",
    "mapfile": "read lines with: while read -r line; do …; done < file",
    "readarray": "read lines with: while read -r line; do …; done < file",
    "shopt": "",
    "compgen": "list files with ls or find",
    "getopts": "set the variables directly",
    "pushd": "use cd",
    "popd": "use cd",
}
INSTEAD: Mapping[str, str] = {
    "cp": "copy with: cat source > target",
    "mkdir": "make folders with files.mkdir(path)",
    "touch": "make an empty file with: > file",
    "less": "use cat, head or tail",
    "more": "use cat, head or tail",
    "egrep": "use grep -E",
    "fgrep": "use grep -F",
    "gawk": "use awk",
    "mawk": "use awk",
    "seq": "use {1..10}, or for ((i = 1; i <= n; i++))",
    "nl": "use cat -n",
    "tac": "use awk '{ l[NR] = $0 } END { for (i = NR; i; i--) print l[i] }'",
    "paste": "use awk",
    "xargs": "use a loop: while read -r item; do …; done",
    "env": "write the variable in front of the command: NAME=value command",
    "timeout": "give execute(…, timeout=seconds)",
    "nohup": "start background work with start()",
    "setsid": "start background work with start()",
    "sleep": "wait outside the sandbox",
    "bash": "write the commands themselves",
    "sh": "write the commands themselves",
    "which": "use type",
    "perl": "use python3",
    "node": "use python3",
    "tar": "use python3 -m tarfile",
    "unzip": "use python3 -m zipfile",
    "zip": "use python3 -m zipfile",
    "gzip": "use python3 -m gzip",
    "md5sum": "use hashlib in python3",
    "sha256sum": "use hashlib in python3",
    "pip": "a sandbox has no network",
    "git": "use a sandbox of the template open",
}

# bash calculates with whatever they are given
INTEGERS = frozenset("BASHPID EUID HISTCMD OPTIND PPID RANDOM SRANDOM UID".split())

_DANGEROUS = re.compile(
    r"PATH|BASH_ENV|ENV|BASHOPTS|SHELLOPTS|BASH_LOADABLES_PATH|BASH_XTRACEFD|BASH_CMDS|BASH_ALIASES|BASH_COMPAT|PS[0-4]|PROMPT_COMMAND|EXECIGNORE"
    r"|LD_\w+|BASH_FUNC_\w*|GIT_\w+|PERL\w+|RUBY\w+|NODE_\w+|JAVA_TOOL_OPTIONS|GCONV_PATH|LOCPATH|NLSPATH|GLIBC_TUNABLES"
    r"|LESSOPEN|LESSCLOSE|LESS|PAGER|MANPAGER|EDITOR|VISUAL|BROWSER|AWKPATH|AWKLIBPATH|MAGIC|SHELL|TERMINFO\w*"
    r"|PYTHON(?!IOENCODING\Z|UNBUFFERED\Z|HASHSEED\Z|UTF8\Z|DONTWRITEBYTECODE\Z)\w+|POSIXLY_CORRECT|HOSTALIASES"
)


def is_dangerous(variable: str) -> bool:
    """Whether setting it can make an allowed program, or bash itself, run other code."""
    return _DANGEROUS.fullmatch(variable) is not None
