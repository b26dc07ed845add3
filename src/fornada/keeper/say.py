"""The keeper's voice: one line on stderr, for the operator."""

import os
import select
import sys

LINE_MOST = 2000
"""Below PIPE_BUF: a pipe that poll calls writable takes it whole, so the write can't wait."""


def say(text: str) -> None:
    """Says what happened, whose fault it is and what to do. Lost where nobody reads stderr: the keeper waits for no reader."""
    line = f"fornada: {' '.join(text.split())}"[: LINE_MOST - 1].encode(errors="replace")[: LINE_MOST - 1] + b"\n"
    try:
        descriptor = sys.stderr.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        if any(event & select.POLLOUT for _, event in poll.poll(0)):
            os.write(descriptor, line)
    except (OSError, AttributeError, ValueError):
        return
