"""What a runner says about its own life: HELLO first and once, then PROGRESS, READY, FAILED, SLEPT, WOKEN."""

from collections.abc import Callable
from typing import Any

from fornada.core.names import Instant
from fornada.node.ears import Ears
from fornada.node.heads import object_of
from fornada_sdk.wire.framing import ProtocolError
from fornada_sdk.wire.messages import Kind

PROGRESS_A_SECOND = 50
"""What is taken in of PROGRESS, as many again in one go; more is left out: a flood would cost us more than its sender."""


class LifeWords:
    """Keeps their order, and a flood of them away from `ears`."""

    def __init__(self, ears: Ears, now: Callable[[], Instant]) -> None:
        self._ears = ears
        self._now = now
        self._greeted = False
        self._left: float = PROGRESS_A_SECOND
        self._at = now()

    def hear(self, kind: int, payload: bytes) -> dict[str, Any]:
        """Returns what was said, {} where it was left out. Raises ProtocolError, ValueError."""
        if kind == Kind.PROGRESS and self._is_flood():
            return {}
        message = object_of(payload)
        if not self._greeted:
            if kind != Kind.HELLO:
                raise ProtocolError(f"{Kind(kind).name} before HELLO")
            self._greeted = True
            self._ears.greeted(message)
            return message
        match kind:
            case Kind.PROGRESS:
                self._ears.progressed(message)
            case Kind.READY:
                self._ears.loaded(message)
            case Kind.FAILED:
                self._ears.failed(message)
            case Kind.SLEPT:
                self._ears.slept(message)
            case Kind.WOKEN:
                self._ears.woken(message)
            case _:
                raise ProtocolError("a second HELLO")
        return message

    def _is_flood(self) -> bool:
        """One more PROGRESS is too much. To be asked once for each."""
        now = self._now()
        self._left = min(PROGRESS_A_SECOND, self._left + (now - self._at) * PROGRESS_A_SECOND)
        self._at = now
        if self._left < 1:
            return True
        self._left -= 1
        return False
