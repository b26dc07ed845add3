"""The way out of one instance: reads its wishes, lets those through that its version names, and ends them with it.

channel ──> wish ──> a place? ── named? ── room? ──> Crossing ──> counted, logged
                        └── no, or too many: one line on the stream, and closed
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterable

from fornada.core.names import ModelName
from fornada.core.policy.outbound import Place, parse_place, place
from fornada.node.outbound.crossing import Crossing, End, refuse
from fornada.node.outbound.way_out import WayOut
from fornada.node.outbound.wishes import BadWish, ChannelOver, Wish, next_wish
from fornada_sdk.wire.outbound import Outcome

CONNECTIONS_MOST = 64
"""Of one instance at the same time."""
WISHES_A_TURN = 8
WISHES_MOST = 32
"""Of one instance in PERIOD_S; what comes beyond waits in the channel, where the runner is told when it is full."""
PERIOD_S = 0.1
TOLD_MOST = 20
"""Lines in the log from one instance in TOLD_PERIOD_S; what isn't told is counted all the same."""
TOLD_PERIOD_S = 1.0
SHOWN_LONGEST = 80


def named_places(network: Iterable[str]) -> frozenset[Place]:
    """The places that a version names. One that is none, which an earlier release let pass, is no place to reach."""
    places = set()
    for pair in network:
        with contextlib.suppress(ValueError):
            places.add(parse_place(pair))
    return frozenset(places)


class Gate:
    """Owns the reading of `descriptor`, not the descriptor, and the instance's connections."""

    def __init__(self, descriptor: int, way: WayOut, *, model: ModelName, instance: str, network: frozenset[Place]) -> None:
        """`network` are the places that the version names."""
        self._channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=descriptor)
        self._way = way
        self._model = model
        self._instance = instance
        self._network = network
        self._crossings: dict[asyncio.Task[None], Crossing] = {}
        self._open = True
        self._reading = False
        self._pause: asyncio.TimerHandle | None = None
        self._since = float("-inf")
        self._lately = 0
        """Wishes since then."""
        self._told_since = float("-inf")
        self._told_lately = 0
        self._untold = 0
        """Ends that the log wasn't told of."""
        metrics = way.telemetry.metrics
        self._sent = metrics.outbound_bytes.at(model, "sent")
        self._received = metrics.outbound_bytes.at(model, "received")
        self._outcomes = metrics.outbound_connections
        self._read_on()

    def close(self) -> None:
        """Reads no more, and ends what is open."""
        if not self._open:
            return
        self._open = False
        self._stop_reading()
        if self._pause is not None:
            self._pause.cancel()
        self._channel.detach()
        for task in list(self._crossings):
            task.cancel()

    def pause(self) -> None:
        """Takes no wishes; what is open goes on."""
        self._stop_reading()
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    def resume(self) -> None:
        """After `pause`."""
        if self._open and not self._reading:
            self._read_on()

    # ---- reading

    def _read_on(self) -> None:
        self._pause = None
        self._reading = True
        self._way.loop.add_reader(self._channel.fileno(), self._readable)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._way.loop.remove_reader(self._channel.fileno())

    def _readable(self) -> None:
        now = self._way.loop.time()
        if now - self._since >= PERIOD_S:
            self._since, self._lately = now, 0
        for _ in range(WISHES_A_TURN):
            if not self._next():
                break
        if self._lately >= WISHES_MOST and self._reading:
            self._stop_reading()
            self._pause = self._way.loop.call_later(PERIOD_S, self._read_on)

    def _next(self) -> bool:
        """Takes one message; whether there was one."""
        try:
            wish = next_wish(self._channel)
        except ChannelOver:
            self._stop_reading()
            return False
        except BadWish as error:
            self._lately += 1
            if error.stream is not None:
                with error.stream:
                    refuse(error.stream, Outcome.REFUSED, str(error))
            self._told(End.REFUSED, "", str(error), 0, 0)
            return True
        if wish is None:
            return False
        self._lately += 1
        self._take(wish)
        return True

    def _take(self, wish: Wish) -> None:
        shown = f"{wish.host[:SHOWN_LONGEST]!a}:{wish.port}"[: 2 * SHOWN_LONGEST]
        try:
            wanted = place(wish.host, wish.port)
        except ValueError:
            self._turn_away(wish, End.REFUSED, shown, f"{shown} is refused: it is no host and port")
            return
        if wanted not in self._network:
            text = f"{wanted} is refused: `network` under [resources] in model.toml doesn't name it"
            self._turn_away(wish, End.REFUSED, str(wanted), text)
        elif len(self._crossings) >= CONNECTIONS_MOST:
            text = f"{wanted} has to wait: {CONNECTIONS_MOST} connections of this instance are open already"
            self._turn_away(wish, End.BUSY, str(wanted), text)
        elif self._way.is_full:
            self._turn_away(wish, End.BUSY, str(wanted), f"{wanted} has to wait: the node has no more connections to give")
        else:
            self._cross(wanted, wish.stream)

    def _turn_away(self, wish: Wish, end: End, shown: str, message: str) -> None:
        with wish.stream:
            refuse(wish.stream, Outcome.BUSY if end is End.BUSY else Outcome.REFUSED, message)
        self._told(end, shown, message, 0, 0)

    # ---- connections

    def _cross(self, wanted: Place, stream: socket.socket) -> None:
        crossing = Crossing(wanted, stream, self._way, sent=self._sent, received=self._received)
        self._way.open += 1
        task = self._way.tasks.start(crossing.run(), name=f"outbound {self._instance}")
        self._crossings[task] = crossing
        task.add_done_callback(self._crossed)

    def _crossed(self, task: "asyncio.Task[None]") -> None:
        crossing = self._crossings.pop(task)
        self._way.open -= 1
        crossing.close()
        self._told(crossing.end, str(crossing.wanted), crossing.why, crossing.sent_bytes, crossing.received_bytes)

    def _told(self, end: End, wanted: str, why: str, sent_bytes: int, received_bytes: int) -> None:
        self._outcomes.at(self._model, end.value).value += 1
        now = self._way.loop.time()
        if now - self._told_since >= TOLD_PERIOD_S:
            self._told_since, self._told_lately = now, 0
        if self._told_lately >= TOLD_MOST:
            self._untold += 1
            return
        self._told_lately += 1
        untold, self._untold = self._untold, 0
        self._way.telemetry.log.info(
            "outbound.ended",
            model=self._model,
            instance=self._instance,
            host=wanted,
            end=end.value,
            why=why,
            sent_bytes=sent_bytes,
            received_bytes=received_bytes,
            untold_before=untold,
        )
