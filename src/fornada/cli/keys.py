"""Keys of a terminal, one at a time and unseen."""

import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

QUIT = frozenset("qQ\x04")
"""Ctrl-D as well: it is how people leave programs that read."""


@contextmanager
def unseen() -> Iterator[None]:
    """Keys come without Enter and aren't shown. Without a terminal on stdin nothing is changed."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin, termios.TCSANOW)  # what was typed already counts
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def quit_within(seconds: float) -> bool:
    """Waits so long at most; whether the person wants to leave."""
    until = time.monotonic() + seconds
    watched = [sys.stdin] if sys.stdin.isatty() else []
    while (left_s := until - time.monotonic()) > 0:
        if not select.select(watched, [], [], left_s)[0]:
            continue
        typed = os.read(sys.stdin.fileno(), 64).decode("utf-8", "replace")
        if not typed:
            watched = []  # the terminal is gone; what ends us comes as a signal
        if any(key in QUIT for key in typed):
            return True
    return False
