"""What a model takes and gives, for whoever asks before it sends anything. Where the weights alone know, they are loaded for the answer."""

from fornada.core.errors import BadRequest
from fornada.core.names import Instant
from fornada.core.ports import Clock, OperationsPort, Resolved
from fornada.core.specs import TensorsSpec
from fornada.edge.tensor_calls import TensorCalls

LOAD_PATIENCE_S = 3600.0
"""How long a load is waited for where the caller names no bound: environments may have to be built."""


class Signatures:
    """Over the node."""

    def __init__(self, *, operations: OperationsPort, calls: TensorCalls, clock: Clock) -> None:
        self._operations = operations
        self._calls = calls
        self._clock = clock

    async def of(self, resolved: Resolved, timeout_s: float | None) -> TensorsSpec:
        """Raises BadRequest for a model that takes no tensors, and what a load raises."""
        known = self._calls.known(resolved)
        if known is None:
            await self._operations.load(resolved.entry.name, deadline=deadline_of(self._clock, timeout_s))
            known = self._calls.known(resolved)
        if known is None:
            raise BadRequest("what this version takes is known once it has been asked: another version serves now")
        return known


def deadline_of(clock: Clock, timeout_s: float | None) -> Instant:
    """Of a load that somebody waits for."""
    return Instant(clock.now() + (timeout_s or LOAD_PATIENCE_S))
