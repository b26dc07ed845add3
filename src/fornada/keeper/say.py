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


def say_fault(error: Exception) -> None:
    """A fault of ours, which somebody should report, with the calls that led to it, the last one first."""
    calls, step = [], error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        calls.append(f"{os.path.basename(code.co_filename)}:{step.tb_lineno} {code.co_name}")
        step = step.tb_next
    say(f"a fault of Fornada's own, please report it; the keeper goes on: {error!r:.500} in {' < '.join(reversed(calls))}")
