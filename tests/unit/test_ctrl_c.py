"""Ctrl-C ends a wait, and nothing else."""

import signal

import pytest

from holdfast.cli.ctrl_c import CtrlC


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def test_ctrl_c_ends_what_is_waited_for():
    """Whatever the wait was about to give back."""
    with CtrlC() as ctrl_c, pytest.raises(KeyboardInterrupt):
        ctrl_c.during(press)


def test_ctrl_c_between_two_waits_ends_the_next_one():
    """A second key, or one at the very end of an answer, must neither be lost nor end the conversation."""
    with CtrlC() as ctrl_c:
        press()
        press()

        with pytest.raises(KeyboardInterrupt):
            ctrl_c.during(list)
        assert [] == ctrl_c.during(list)


def test_what_is_waited_for_may_fail_by_itself():
    """Only what a second signal makes of the first is taken for a Ctrl-C."""
    with CtrlC() as ctrl_c, pytest.raises(SystemError, match="broken"):
        ctrl_c.during(lambda: (_ for _ in ()).throw(SystemError("broken")))


def test_signals_are_afterwards_what_they_were_before():
    """Whoever asks one question, as compare does for a vote, hands back its loop's own handlers."""
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGURG)]
    with CtrlC():
        press()

    assert before == [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGURG)]
    assert -1 == signal.set_wakeup_fd(-1)
