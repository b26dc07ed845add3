"""Requests that are answered together, and run one after the other: each is sent when the one before it was answered.

So a long list takes one place in the model's line at a time, and others get theirs in between.
"""

from collections.abc import Callable, Iterator

from fornada.core.requests import InferenceRequest, Sink, Ticket
from fornada.edge.calls import Exchange


class InTurn:
    """The requests of one exchange. Its sink calls `go_on` after each answer but the last."""

    __slots__ = ("_exchange", "_requests", "_sending", "_submit", "_wanted")

    def __init__(
        self, exchange: Exchange, submit: Callable[[InferenceRequest, Sink], Ticket], requests: Iterator[InferenceRequest]
    ) -> None:
        self._exchange = exchange
        self._submit = submit
        self._requests = requests
        self._sending = False
        self._wanted = False

    def go_on(self, sink: Sink) -> None:
        """Sends the next request. There must be one."""
        self._wanted = True
        if self._sending:
            return  # answered from within submit: the loop below sends it, so that the exchange holds the newest ticket
        self._sending = True
        while self._wanted:
            self._wanted = False
            self._exchange.hold(self._submit(next(self._requests), sink))
        self._sending = False
