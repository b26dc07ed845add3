"""What `fornada serve` tells the person who started it: the address, the way in, and with `make serve` a line to paste."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from fornada.core.errors import FornadaError
from fornada.core.names import LOCAL_ACCOUNT, Instant, ModelName
from fornada.core.ports import Clock, ModelView, OperationsPort

EXAMPLE_MODEL = ModelName("@fornada/efficientnet-lite0")
EXAMPLE_ALIAS = "@cf/microsoft/resnet-50"
EXAMPLE_PATIENCE_S = 1800.0
"""A first start fetches some 600 MB of packages; slow lines are no reason to give up."""
PROGRESS_EVERY_S = 0.2
OPEN_MODE_TOKEN = "any"


def announce(url: str, data_dir: Path, isolation: str, out: TextIO = sys.stdout, *, keyed: bool = False) -> None:
    """The lines that every start prints. `keyed`: nobody comes in without a key."""
    print(f"Fornada is ready on {url}  (data in {_short(data_dir)}, isolation: {isolation})", file=out)
    print(f"  docs     {url}/docs", file=out)
    if keyed:
        print("  account  the key's    token  a key  ('fornada keys create' makes one)", file=out)
    else:
        print(f"  account  {LOCAL_ACCOUNT}    token  {OPEN_MODE_TOKEN}  (open mode: loopback only, no keys)", file=out)
    out.flush()


def farewell(deadline_s: float, out: TextIO = sys.stdout) -> None:
    """At the begin of a drain, to a person at a terminal; elsewhere the log says it."""
    if out.isatty():
        print(f"\nStopping: what runs may end within {deadline_s:g} s. Ctrl-C again ends it at once.", file=out, flush=True)


async def prepare_example(
    operations: OperationsPort, clock: Clock, url: str, picture: Path, out: TextIO = sys.stdout, *, keyed: bool = False
) -> None:
    """Makes the example model's environment and weights ready, showing progress, then prints the line to paste.

    A failure is told in one line and leaves the node serving.
    """
    narrate = asyncio.create_task(_narrate(lambda: operations.view(EXAMPLE_MODEL), out))
    try:
        await operations.load(EXAMPLE_MODEL, deadline=Instant(clock.now() + EXAMPLE_PATIENCE_S))
    except FornadaError as error:
        print(f"  the example model can't be prepared: {error.message}", file=out, flush=True)
        return
    finally:
        narrate.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await narrate
    print("Try it, in a second shell:", file=out)
    account, key = (LOCAL_ACCOUNT, "") if not keyed else ("$FORNADA_ACCOUNT", ' -H "Authorization: Bearer $FORNADA_TOKEN"')
    print(f"curl -sS {url}/client/v4/accounts/{account}/ai/run/{EXAMPLE_ALIAS}{key} --data-binary @{_short(picture)}", file=out, flush=True)


async def _narrate(view: Callable[[], ModelView], out: TextIO) -> None:
    """One moving line on a terminal, one line a step elsewhere."""
    terminal = out.isatty()
    last = ""
    try:
        while True:
            progress = view().progress or {}
            fraction = progress.get("fraction")
            percent = f"{fraction:4.0%} " if isinstance(fraction, float) else ""
            step = f"{progress.get('phase', '')}: {percent}{progress.get('text', '')}".strip(": ")
            shown = f"  preparing {EXAMPLE_MODEL}  {step}" if terminal else f"  preparing {EXAMPLE_MODEL}  {progress.get('phase', '')}"
            if step and shown != last:
                print(f"\r\033[K{shown[: _columns() - 1]}" if terminal else shown, end="" if terminal else "\n", file=out, flush=True)
                last = shown
            await asyncio.sleep(PROGRESS_EVERY_S)
    finally:
        if terminal and last:
            print("\r\033[K", end="", file=out, flush=True)


def _columns() -> int:
    with contextlib.suppress(OSError):
        return os.get_terminal_size().columns
    return 120


def _short(path: Path) -> str:
    """Relative to the current directory where it lies inside, so that a pasted line works there."""
    with contextlib.suppress(ValueError):
        return str(path.absolute().relative_to(Path.cwd()))
    return str(path)
