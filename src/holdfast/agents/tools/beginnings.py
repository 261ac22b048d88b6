"""The beginning of a command: what a person may allow for more commands than one."""

from __future__ import annotations

import re
import shlex

_SPECIAL = re.compile(r"[;&|<>$`\\\n\r(){}!#*?\[\]\0]")
"""What makes of a command more than a program with its arguments, or arguments that nobody has seen."""
_RUNS_OTHERS = re.compile(
    "(?:.*/)?(?:[gm]?awk|ash|bash|bun|bunx|busybox|chroot|command|csh|dash|deno|doas|env|eval|exec|find|fish|ionice|ksh"
    "|lua|nice|node|nohup|npx|parallel|perl|php|pkexec|pypy|python|ruby|setsid|sh|ssh|stdbuf|strace|su|sudo|taskset|tcsh"
    "|time|timeout|uvx|watch|xargs|zsh)[0-9.-]*"
)
"""Programs that run what their arguments say: who allows such a name allows everything."""
_SUBCOMMAND = re.compile(r"[a-z][a-z-]*")


def words_of(command: str) -> list[str]:
    """Return the words of a command that is only a program with its arguments; none if it may be more."""
    if _SPECIAL.search(command):
        return []
    try:
        words = shlex.split(command)
    except ValueError:
        return []
    return [] if not words or "=" in words[0] or _RUNS_OTHERS.fullmatch(words[0]) else words


def first_words(command: str) -> str:
    """Return the beginning to suggest: the program, and a word after it that looks like its command."""
    words = words_of(command)
    return " ".join(words[: 2 if len(words) > 1 and _SUBCOMMAND.fullmatch(words[1]) else 1])


def begins_with(command: str, beginning: str) -> bool:
    """Return whether a command begins with the words of a beginning, and does nothing else."""
    words, wanted = words_of(command), words_of(beginning)
    return bool(wanted) and words[: len(wanted)] == wanted
