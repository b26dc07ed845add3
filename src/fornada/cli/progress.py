"""Says on stderr how far a model is while a call to the node waits for it."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import click

from fornada.cli.client import Node
from fornada.cli.failures import CommandFailed, one_line

QUIET_S = 0.4
"""What is over sooner shows nothing."""
ASK_EVERY_S = 0.4
REPEAT_AFTER_S = 10.0
"""Where there is no terminal: the same phase is said again after so long, as a sign of life."""
JOIN_S = 1.0


class Display(Protocol):
    def show(self, phase: str, text: str, fraction: float | None) -> None: ...

    def close(self) -> None: ...


@contextmanager
def watching(node: Node, model: str, *, quiet: bool = False) -> Iterator[None]:
    """Shows the model's progress while the body waits for the node, unless `quiet`."""
    if quiet:
        yield
        return
    over = threading.Event()
    # The body keeps the main thread, so that Ctrl-C ends it at once; the watcher is a daemon, so that it can't keep the command.
    watcher = threading.Thread(target=_watch, args=(node, model, over), name="fornada-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join(JOIN_S)


def choose_display(model: str) -> Display:
    return Bar(model) if sys.stderr.isatty() else Lines(model)


class Bar:
    """A progress bar on the terminal."""

    def __init__(self, model: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TaskProgressColumn(show_speed=False),
            TimeElapsedColumn(),
            TextColumn("{task.fields[text]}", markup=False),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task(model, total=None, text="")
        self._model = model
        self._progress.start()

    def show(self, phase: str, text: str, fraction: float | None) -> None:
        self._progress.update(
            self._task,
            description=f"{self._model}: {phase}",
            text=text[:60],
            total=None if fraction is None else 1.0,
            completed=fraction or 0.0,
        )

    def close(self) -> None:
        self._progress.stop()


class Lines:
    """A line per phase: for pipes and logs."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._said = ""
        self._when = 0.0

    def show(self, phase: str, text: str, fraction: float | None) -> None:
        now = time.monotonic()
        if phase == self._said and now - self._when < REPEAT_AFTER_S:
            return
        self._said, self._when = phase, now
        share = "" if fraction is None else f" {fraction:.0%}"
        click.echo(f"{self._model}: {phase}{share}{': ' + text if text else ''}", err=True)

    def close(self) -> None:
        pass


def _watch(node: Node, model: str, over: threading.Event) -> None:
    display: Display | None = None
    wait_s = QUIET_S
    while not over.wait(wait_s):
        wait_s = ASK_EVERY_S
        if step := _progress(node, model):
            if over.is_set():
                break
            display = display or choose_display(model)
            display.show(str(step.get("phase") or ""), one_line(str(step.get("text") or "")), _fraction(step.get("fraction")))
    if display:
        display.close()


def _progress(node: Node, model: str) -> dict[str, Any] | None:
    try:
        step = node.model(model).get("progress")
    except CommandFailed:
        return None  # the call itself will say what is wrong
    return step if isinstance(step, dict) else None


def _fraction(value: Any) -> float | None:
    return min(max(float(value), 0.0), 1.0) if isinstance(value, int | float) else None
