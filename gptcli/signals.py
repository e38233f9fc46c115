"""The signals that ask a program to stop: Ctrl-C, SIGTERM, and a terminal that was closed."""

from __future__ import annotations

import signal

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def heeded_signals() -> list[signal.Signals]:
    """Those that this program was not started to ignore, as `nohup` and a shell's `&` do; that stays so."""
    return [signum for signum in STOP_SIGNALS if signal.getsignal(signum) is not signal.SIG_IGN]
