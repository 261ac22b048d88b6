"""The beginning of a command, by which a person may allow others."""

import pytest

from holdfast.agents.tools.beginnings import begins_with, first_words
from tests.requirements import requirement


@requirement("agent.grants")
@pytest.mark.parametrize(
    ("command", "beginning"),
    [
        ("git status --short", "git status"),
        ("ls -la", "ls"),
        ("cat 'my notes'", "cat"),
        ("git status; rm -rf .", ""),
        ("git status && id", ""),
        ("echo $HOME", ""),
        ("echo `id`", ""),
        ("git status\nid", ""),
        ("cat < /etc/passwd", ""),
        ("LD_PRELOAD=x git status", ""),
        ("echo 'open", ""),
        ("ls *", ""),
        ("bash -c id", ""),
        ("sudo git status", ""),
        ("/usr/bin/env ls", ""),
        ("find . -name notes", ""),
        ("npx tool", ""),
        ("perl5.36 -e 1", ""),
        ("/usr/bin/php8.3 a.php", ""),
        ("shellcheck a.sh", "shellcheck"),
        ("", ""),
    ],
)
def test_only_a_program_with_its_arguments_has_a_beginning(command, beginning):
    """Whatever a shell would make more of is asked for each time."""
    assert beginning == first_words(command)


@requirement("agent.grants")
@pytest.mark.parametrize("command", ["git", "gitstatus", "git stash", "git status | sh", "git 'status x'", ""])
def test_words_are_compared_as_a_whole(command):
    """A word that only begins so is another word."""
    assert begins_with("git status -s", "git status")
    assert not begins_with(command, "git status")
    assert not begins_with("git status", "")
