"""Both ends of one link in one process: a real link here, a real attachment of the SDK at the other end of the socket."""

import asyncio
import gc
import os
import random
import socket
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from fornada.core.names import Instant
from fornada.node.call import Call
from fornada.node.link import Link
from fornada_sdk.runner import call as sdk
from fornada_sdk.runner.answers import ok_frames
from fornada_sdk.runner.attachment import Attachment
from fornada_sdk.wire.framing import STORED, frame
from fornada_sdk.wire.messages import Kind
from tests.harness.processes import descriptors
from tests.loops.plain import plain_request

MAX_BODY = 1024 * 1024
LONG = 150_000


class Ears:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.orphans: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None

    def faulted(self, reason: str) -> None:
        self.faults.append(reason)

    def orphaned(self, request: int) -> None:
        self.orphans.append(request)


class Sink:
    """Of one request."""

    answered: Any = None
    refused: Any = None

    def answer(self, head: Any, body: Any) -> None:
        self.answered = body

    def refuse(self, error: Any) -> None:
        self.refused = error


class Stand:
    """Both ends. The runner's is read when `turn` is called."""

    def __init__(self, *, arenas: bool = True) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        theirs.setblocking(False)
        self.ours, self.theirs = ours, theirs
        loop = asyncio.get_running_loop()
        self.ears = Ears()
        nothing: Any = self
        self.link = Link(
            ours.fileno(),
            ears=cast(Any, self.ears),
            service_s=deque(maxlen=4),
            runner_s=nothing,
            max_body=MAX_BODY,
            now=lambda: Instant(loop.time()),
            loop=loop,
        )
        self.link.capacity = 100
        self.far = Attachment(theirs, nothing, epoch=1, body_limit=1 << 30, writable=lambda *_: None)
        self.kinds: list[int] = []
        """Of what came to the runner."""
        self.calls: dict[int, sdk.Call] = {}
        self.far.send_json(Kind.HELLO, {"arenas": True} if arenas else {})

    # what a link uses beside the wire
    def observe(self, seconds: float) -> None: ...

    def discard(self, call: Call) -> None: ...

    async def turn(self, *, reads: bool = True) -> None:
        for _ in range(30):
            await asyncio.sleep(0)
            if reads:
                self.far.receive(self._call, self._message)
                self.far.flush()

    def _call(self, call: sdk.Call) -> None:
        self.calls[call.id] = call

    def _message(self, kind: int, request: int, payload: Any) -> None:
        self.kinds.append(kind)
        if kind == Kind.ARENA:
            self.far.hear_arena(payload)
        elif kind == Kind.TRIM:
            self.far.trim()
        elif kind == Kind.ACK and self.far.arenas is not None:
            self.far.arenas.acknowledged(memoryview(payload).cast("Q"))

    def ask(self, number: int, body: bytes, *, pieces: int = 1) -> Sink:
        step = -(-len(body) // pieces)
        given = [body[at : at + step] for at in range(0, len(body), step)]
        request = plain_request(given)
        sink = Sink()
        now = Instant(asyncio.get_running_loop().time())
        nothing: Any = self
        self.link.send(Call(number, request, cast(Any, sink), nothing, nothing, Instant(now + 1000), now), now)
        return sink

    def answer(self, number: int, body: bytes) -> None:
        messages = ok_frames(self.calls.pop(number), body, 0.0)
        self.far.send(messages)

    async def through(self, number: int, body: bytes) -> None:
        """A request whose answer is its own body."""
        sink = self.ask(number, body, pieces=3)
        await self.turn()
        assert self.calls[number].raw == body
        self.answer(number, body)
        await self.turn()
        assert bytes(sink.answered) == body
        assert not self.ears.faults

    async def settled(self) -> None:
        """Both files are there and in use."""
        await self.turn()
        for number in (1, 2):
            await self.through(number, some(LONG, number))
        assert self.kinds.count(Kind.ARENA) == 4
        assert all(self.blocks().values())
        self.kinds.clear()
        await asyncio.sleep(1)
        await self.turn()

    @property
    def files(self) -> dict[str, int]:
        """Descriptors of ours."""
        held = self.link._arenas
        return {name: file.descriptor for name, file in (("requests", held._requests), ("answers", held._answers)) if file is not None}

    def blocks(self) -> dict[str, int]:
        return {name: os.fstat(descriptor).st_blocks for name, descriptor in self.files.items()}

    def say(self, kind: Kind, number: int, payload: bytes, *, flags: int = STORED) -> None:
        self.theirs.send(frame(kind, number, payload, flags=flags))

    def close(self) -> None:
        self.link.close()
        self.far.close()
        self.ours.close()


@contextmanager
def stand(**options: Any) -> Iterator[Stand]:
    gc.collect()  # what earlier tests left for it to close
    before = descriptors(os.getpid())
    made = Stand(**options)
    try:
        yield made
    finally:
        made.close()
    assert descriptors(os.getpid()) == before, "descriptors are left"


def some(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)
