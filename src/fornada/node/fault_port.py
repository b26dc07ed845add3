"""For tests of what a kill leaves behind: stops the control plane after the n-th command of a life, so that something can be killed just then.

Set by the environment of `fornada serve` alone: FORNADA_TEST_FAULT_PORT names a folder. A test writes a number n to `arm` there. When n commands
have been carried out since, the control plane writes which one it was to `reached`, and does nothing more until that file is gone.
"""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

VARIABLE = "FORNADA_TEST_FAULT_PORT"
LOOK_S = 0.002
LONGEST_S = 60.0
"""A test that died has not removed `reached`."""


def fault_port(environ: Mapping[str, str]) -> Callable[[str, str], None]:
    """Called after each command with its name and the instance's key."""
    folder = environ.get(VARIABLE)
    return FaultPort(Path(folder)).passed if folder else _nothing


def _nothing(command: str, instance: str) -> None:
    """No test wants to know."""


class FaultPort:
    """Of one control plane."""

    def __init__(self, folder: Path) -> None:
        self._arm, self._reached = folder / "arm", folder / "reached"
        self._armed = ""
        self._left = 0

    def passed(self, command: str, instance: str) -> None:
        try:
            armed = self._arm.read_text()
        except OSError:
            armed = ""
        if armed != self._armed:
            self._armed, self._left = armed, int(armed or 0)
        if not self._left:
            return
        self._left -= 1
        if self._left:
            return
        draft = self._reached.with_suffix(".draft")
        draft.write_text(json.dumps({"command": command, "instance": instance}))
        draft.replace(self._reached)
        until = time.monotonic() + LONGEST_S
        while self._reached.exists() and time.monotonic() < until:
            time.sleep(LOOK_S)
