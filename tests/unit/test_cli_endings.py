from __future__ import annotations

import os
import signal

import pytest

from hutch.cli.endings import CALLER_ERROR, UNAVAILABLE, Ending, Interrupted, exit_code, interruptible
from hutch.cli.main import _warning_shower
from hutch.model.errors import ERRORS

NO_SANDBOX = {
    "internal",
    "sandbox_unavailable",
    "wall_missing",
    "store_unavailable",
    "pool_exhausted",
    "port_unreachable",
    "rate_limited",
    "sandbox_moved",
    "worker_lost",
    "server_unreachable",
}


@pytest.mark.parametrize("code", ERRORS)
def test_every_error_has_an_exit_code(code: str) -> None:
    assert exit_code(ERRORS[code]("why")) == (UNAVAILABLE if code in NO_SANDBOX else CALLER_ERROR)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_unwinds_once_and_handlers_come_back(signum: signal.Signals) -> None:
    before = signal.getsignal(signum)
    cleaned: list[str] = []
    with pytest.raises(Interrupted), interruptible() as ending:
        try:
            os.kill(os.getpid(), signum)
            signal.pause()
        finally:
            os.kill(os.getpid(), signum)  # the same wish again must not end the clean-up
            cleaned.append("all")
    assert ending.exit_code == 128 + signum
    assert cleaned == ["all"]
    assert signal.getsignal(signum) == before


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_warnings_about_what_a_signal_left_half_done_are_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    ending = Ending()
    show_warning = _warning_shower(ending)
    show_warning("about something")
    ending.signum = 15
    show_warning("a coroutine was never awaited")
    assert capfd.readouterr().err == "hutch: warning: about something\n"
