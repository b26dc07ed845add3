"""The command on a real terminal: a pseudo-terminal for all three descriptors."""

import contextlib
import os
import pty
import re
import select
import subprocess
import sys
import time
from typing import NamedTuple

from tests.bounds import bound

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b\][^\x07]*\x07|\r")

# The terminal becomes the controlling one of the new session: without it Ctrl-C is a character and no signal.
START = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); from fornada.cli.main import main; main()"


class Seen(NamedTuple):
    """What a person saw, colours and cursor moves taken out, and how it ended. `raw` has them."""

    text: str
    raw: str
    code: int


def on_a_terminal(
    *args: str, url: str, typed: str = "", interrupt_at: str = "", type_at: tuple[str, str] = ("", ""), columns: int = 140
) -> Seen:
    """Runs `fornada ARGS`. `typed` is typed at once; Ctrl-C is typed when `interrupt_at` has been shown; `type_at`: what
    has to be shown, what is typed then."""
    awaited, answer = (interrupt_at, "\x03") if interrupt_at else type_at
    outer, inner = pty.openpty()
    env = {**os.environ, "FORNADA_URL": url, "TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "40"}
    process = subprocess.Popen(
        [sys.executable, "-c", START, *args], stdin=inner, stdout=inner, stderr=inner, env=env, start_new_session=True
    )
    os.close(inner)
    os.write(outer, typed.encode())
    shown = b""
    interrupted = False
    deadline = time.monotonic() + bound(30)
    try:
        while time.monotonic() < deadline:
            if not select.select([outer], [], [], 0.05)[0]:
                continue
            try:
                piece = os.read(outer, 65536)
            except OSError:  # the last one that held the other end has gone
                break
            if not piece:
                break
            shown += piece
            if awaited and not interrupted and awaited.encode() in shown:
                os.write(outer, answer.encode())
                interrupted = True
        code = process.wait(timeout=max(deadline - time.monotonic(), 1.0))
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()
        os.close(outer)
    raw = shown.decode("utf-8", "replace")
    return Seen(ESCAPES.sub("", raw), raw, code)
