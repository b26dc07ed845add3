"""The line of requests that wait for one version of a model."""

from collections import OrderedDict
from collections.abc import Iterator

from fornada.core.names import Instant
from fornada.core.requests import Priority
from fornada.node.call import Call


class Line:
    """First come, first served; jobs of the batch API after everybody else. Whoever leaves is out at once, at no cost."""

    def __init__(self) -> None:
        self._interactive: OrderedDict[int, Call] = OrderedDict()
        self._jobs: OrderedDict[int, Call] = OrderedDict()

    def __len__(self) -> int:
        return len(self._interactive) + len(self._jobs)

    def __iter__(self) -> Iterator[Call]:
        yield from list(self._interactive.values())
        yield from list(self._jobs.values())

    def add(self, call: Call) -> None:
        self._of(call)[call.id] = call

    def discard(self, call: Call) -> bool:
        """Whether it was there."""
        return self._of(call).pop(call.id, None) is not None

    def pop(self) -> Call:
        """The next one. Raises KeyError where nobody waits."""
        return (self._interactive or self._jobs).popitem(last=False)[1]

    def oldest(self) -> Instant | None:
        """Since when the one waits who has waited longest."""
        heads = [next(iter(calls.values())).since for calls in (self._interactive, self._jobs) if calls]
        return min(heads, default=None)

    def _of(self, call: Call) -> OrderedDict[int, Call]:
        return self._interactive if call.request.priority is Priority.INTERACTIVE else self._jobs
