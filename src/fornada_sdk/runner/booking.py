"""Device memory that model code books on a fake device: asked of the control plane, answered by BOOKED."""

from __future__ import annotations

import itertools
import threading
from typing import Any, Callable

from fornada_sdk.api import OutOfDeviceMemory
from fornada_sdk.wire.messages import Kind

ANSWER_S = 60.0
"""How long a booking waits for its answer; a control plane may be restarted meanwhile."""

Tell = Callable[[Kind, "dict[str, Any]", int], None]
"""(kind, payload, number); never waits."""


class Bookings:
    """Asked by model code's threads, answered by the reading thread."""

    def __init__(self, tell: Tell, telling: threading.Lock, answer_s: float = ANSWER_S) -> None:
        """`tell` reaches every control plane; `telling` is held for it, so that each hears a question once."""
        self._tell = tell
        self._telling = telling
        self._answer_s = answer_s
        self._numbers = itertools.count(1)
        self._asked: dict[int, tuple[dict[str, Any], threading.Event]] = {}
        self._refused: dict[int, str] = {}
        self._held: dict[str, int] = {}
        self._delay_s = 0.0
        """The longest release delay that was asked for."""
        self._aside: dict[str, int] = {}
        """What was held before it fell asleep."""

    def book(self, device: str, size: int, release_delay_s: float, hurry: Callable[[], None]) -> None:
        """Returns once `size` bytes are booked. `hurry` gets the answer read soon. Raises OutOfDeviceMemory."""
        number = next(self._numbers)
        question: dict[str, Any] = {"device": device, "bytes": size}
        if release_delay_s:
            question["release_delay_s"] = release_delay_s
        answered = threading.Event()
        with self._telling:
            self._asked[number] = (question, answered)
            self._tell(Kind.BOOK, question, number)
        hurry()
        if not answered.wait(self._answer_s):
            self._asked.pop(number, None)
            raise OutOfDeviceMemory(f"nobody answered within {self._answer_s:g} s whether {device} has {size} bytes")
        refusal = self._refused.pop(number, None)
        if refusal is not None:
            raise OutOfDeviceMemory(refusal)

    def booked(self, number: int, answer: dict[str, Any]) -> None:
        """BOOKED has come. One that nobody waits for is ignored: two control planes may have answered."""
        question, answered = self._asked.pop(number, (None, None))
        if question is None or answered is None:
            return
        if answer.get("ok"):
            self._held[question["device"]] = self._held.get(question["device"], 0) + question["bytes"]
            self._delay_s = max(self._delay_s, question.get("release_delay_s", 0.0))
        else:
            self._refused[number] = str(answer.get("message") or f"{question['device']} has no {question['bytes']} bytes left")
        answered.set()

    def set_aside(self) -> None:
        """It has fallen asleep: who hears of that gives back all that is booked. `telling` is held."""
        self._aside, self._held = self._held, {}

    def restore(self, hurry: Callable[[], None]) -> None:
        """It wakes: as much is booked as before, less what the model has booked itself meanwhile. Raises OutOfDeviceMemory."""
        aside, self._aside = self._aside, {}
        for device, size in aside.items():
            missing = size - self._held.get(device, 0)
            if missing > 0:
                self.book(device, missing, self._delay_s, hurry)

    def ask_again(self, tell: Tell) -> None:
        """A new control plane is attached, which `tell` reaches; it hasn't heard the questions that are still open. `telling` is held."""
        for number, (question, _) in list(self._asked.items()):
            tell(Kind.BOOK, question, number)

    def facts(self) -> dict[str, Any]:
        """What HELLO says about bookings that were granted: {"booked": {device: bytes}}, or nothing."""
        return {"booked": dict(self._held)} if self._held else {}
