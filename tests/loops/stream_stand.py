"""A real link to a real runner process, under conditions that are as bad as can be had; on a stall both ends say how they stand.

The runner's model paces streams as it is told. Its process is stopped and let go on, this loop sleeps on its feet, and another process
takes the CPU, all at random moments; sockets hold hardly more than a packet.
"""

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

from fornada.core.names import Instant
from fornada.node.call import Call
from fornada.node.link import Link
from fornada_sdk.wire.channel import pair
from fornada_sdk.wire.messages import STREAM_WINDOW, Kind
from tests.bounds import bound
from tests.loops.plain import plain_request
from tests.unit.sdk.driver import Runner, Start

SOCKET_BYTES = 36_000
"""The kernel takes twice as much, and a packet of 64 KiB must fit."""
STALL_S = 20.0
MANY = 100_000

PACED = """
    def sizes(keys):
        return [keys["size"]] * keys["steps"]
    def item(number, size):
        return {"i": number, "pad": "x" * size}
"""
ON_A_LOOP = """
    import asyncio
    async def stream(keys):
        for number, size in enumerate(sizes(keys)):
            await asyncio.sleep(keys["pause_s"])
            yield item(number, size)
    async def handle(request, context):
        keys = request.body.json
        if "steps" in keys:
            return stream(keys)
        await asyncio.sleep(keys.get("pause_s", 0))
        return keys
    class Handle:
        async def __call__(self, request, context):
            return await handle(request, context)
    handle_request = Handle()
"""
ON_THREADS = """
    import time
    def stream(keys):
        for number, size in enumerate(sizes(keys)):
            time.sleep(keys["pause_s"])
            yield item(number, size)
    def handle_request(request, context):
        keys = request.body.json
        return stream(keys) if "steps" in keys else keys
"""
TELLS = """
    import faulthandler, signal, sys
    def tell(number, frame):
        while type(frame.f_locals.get("self")).__name__ != "Life":
            frame = frame.f_back
        session = frame.f_locals["self"].session
        print(session.state, "inbox", [call.id for call in session.inbox])
        for call in list(session.calls.values()):
            print("call", call.id, "started", call.started, "over", call.over, "cancelled", call.cancelled, "streamed", call.streamed,
                  "sent", call.sent, "taken", call.taken)
        for one in list(session._attached.values()):
            print("attached, open", one.open, "waiting", one.waiting, "queue", len(one._queue), "stuck", one._stuck is not None)
        faulthandler.dump_traceback(sys.stderr.fileno(), all_threads=True)
        print("that is all")
    signal.signal(signal.SIGUSR1, tell)
"""


class Ears:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.ready: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.on_freed = lambda: None

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None

    def greeted(self, hello: dict[str, Any]) -> None:
        if hello["state"] == "ready":
            self.loaded(hello)

    def loaded(self, ready: dict[str, Any]) -> None:
        self.ready.set_result(ready)

    def freed(self) -> None:
        self.on_freed()

    def faulted(self, reason: str) -> None:
        self.faults.append(reason)


class Caller:
    """A request and its reader: takes what comes at once, or late; leaves early, or stays to the end."""

    def __init__(self, number: int, keys: dict[str, Any], *, slow_s: float = 0.0) -> None:
        self.keys = keys
        self.call: Call
        self.ended = ""
        self.done = asyncio.Event()
        self.items = 0
        self._number = number
        self._slow_s = slow_s

    def answer(self, head: Any, body: Any) -> None:
        self._end("answered" if json.loads(bytes(body)) == self.keys else f"answered {bytes(body)[:100]!r}")

    def refuse(self, error: Any) -> None:
        self._end(f"refused: {error}")

    def stream_begins(self, head: Any) -> None: ...

    def item(self, data: bytes) -> None:
        if json.loads(data)["i"] == self.items:
            self.items += 1
        if self._slow_s:
            asyncio.get_running_loop().call_later(self._slow_s, self.call.taken, len(data))
        else:
            self.call.taken(len(data))

    def stream_ends(self, error: Any, head: Any = None) -> None:
        whole = error is None and self.items == self.keys["steps"]
        self._end("answered" if whole else f"{self.items} of {self.keys['steps']} items: {error}")

    def leave(self) -> None:
        if not self.done.is_set():
            self.call.leave()
            self._end("left")

    def _end(self, how: str) -> None:
        assert not self.ended, f"told twice: {self.ended}, {how}"
        self.ended = how
        self.done.set()


class Stand:
    """The link, and who waits for a place at it."""

    def __init__(self, runner: Runner, *, small: bool) -> None:
        self.runner = runner
        ours, theirs = pair()
        ours.setblocking(False)
        self._ours = ours
        self._theirs: socket.socket | None = theirs
        """A second descriptor of the runner's own socket, which makes its buffers wide; here they are made small again."""
        runner.keeper.send(Kind.ATTACH, {"epoch": 1}, [os.dup(theirs.fileno())])
        self.small = small
        self.ears = Ears()
        loop = asyncio.get_running_loop()
        nothing: Any = self
        self.link = Link(
            ours.fileno(),
            ears=cast(Any, self.ears),
            service_s=deque(maxlen=4),
            runner_s=nothing,
            max_body=1 << 20,
            now=lambda: Instant(loop.time()),
            loop=loop,
        )
        self.ears.on_freed = self._send
        self._waiting: deque[Caller] = deque()
        self._numbers = iter(range(1, MANY))

    # what a link and a call use beside the wire
    def observe(self, seconds: float) -> None: ...

    def discard(self, call: Call) -> None: ...

    def withdraw(self, call: Call) -> None: ...

    async def ready(self) -> None:
        told = await asyncio.wait_for(self.ears.ready, bound(20))
        self.link.capacity = int(told["pipelining"])
        assert self._theirs is not None
        if self.small:
            for sock in (self._ours, self._theirs):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BYTES)
        self._theirs.close()
        self._theirs = None

    def ask(self, keys: dict[str, Any], *, slow_s: float = 0.0) -> Caller:
        number = next(self._numbers)
        caller = Caller(number, keys, slow_s=slow_s)
        now = Instant(asyncio.get_running_loop().time())
        request = plain_request([json.dumps(keys).encode()])
        nothing: Any = self
        caller.call = Call(number, request, cast(Any, caller), nothing, nothing, Instant(now + 1000), now)
        self._waiting.append(caller)
        self._send()
        return caller

    def _send(self) -> None:
        while self._waiting and self.link.has_room:
            caller = self._waiting.popleft()
            if not caller.done.is_set():
                self.link.send(caller.call, Instant(asyncio.get_running_loop().time()))

    async def all_end(self, callers: list[Caller]) -> None:
        """Fails with the state of both ends where somebody waits in vain."""
        waits = [asyncio.ensure_future(caller.done.wait()) for caller in callers]
        _, late = await asyncio.wait(waits, timeout=bound(STALL_S))
        for wait in late:
            wait.cancel()
        if late:
            raise AssertionError(f"{len(late)} of {len(callers)} wait in vain\n{self._how_it_stands(callers)}")

    async def at_rest(self) -> None:
        """The runner has ended every call, those whose callers have left too."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(bound(STALL_S)):
                while self.link.calls:
                    await asyncio.sleep(0.005)
        assert not self.link.calls, f"the runner hasn't ended {len(self.link.calls)} calls\n{self._how_it_stands([])}"

    def _how_it_stands(self, callers: list[Caller]) -> str:
        box = self.link._outbox
        lines = [
            f"link: open {self.link.open}, room {self.link.has_room}, faults {self.ears.faults}, {len(self._waiting)} wait for a place",
            f"outbox: blocked {box.blocked}, flush due {box.flush_due}, frames {len(box.frames)}, bytes {box.size}, acks {len(box.acks)}",
        ]
        lines += [
            f"call {call.id}: {call.state.value}, seen {call.seen}, taken {call.taken_bytes}, credited {call.credited}"
            for call in self.link.calls.values()
        ]
        lines += [f"caller {c.call.id}: {c.call.state.value}, {c.items} items of {c.keys}" for c in callers if not c.done.is_set()]
        self.runner.signal(signal.SIGCONT)
        self.runner.signal(signal.SIGUSR1)
        with contextlib.suppress(AssertionError):
            self.runner.wait_line(lambda line: "that is all" in line, 5)
        return "\n".join([*lines, "the runner:", *self.runner.lines[-200:]])

    def close(self) -> None:
        self.link.close()
        self._ours.close()
        if self._theirs is not None:
            self._theirs.close()


@contextlib.asynccontextmanager
async def stand(start: Start, code: str, *, concurrency: int, small: bool = True) -> AsyncIterator[Stand]:
    made = Stand(start(TELLS + PACED + code, serving={"concurrency": concurrency}), small=small)
    try:
        await made.ready()
        yield made
    finally:
        made.close()


# ---- what makes it hard


async def stopped_now_and_then(runner: Runner, chance: random.Random) -> None:
    """As parking does, and a machine that is suspended."""
    while True:
        await asyncio.sleep(chance.random() * 0.1)
        runner.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(chance.random() * 0.05)
        finally:
            runner.signal(signal.SIGCONT)


async def held_up_now_and_then(chance: random.Random) -> None:
    """The loop of the control plane stands still."""
    while True:
        await asyncio.sleep(chance.random() * 0.1)
        time.sleep(chance.random() * 0.04)  # noqa: ASYNC251 - that is the point


@contextlib.contextmanager
def busy_machine(processes: int) -> Iterator[None]:
    """So many others want the CPU all the time."""
    others = [subprocess.Popen([sys.executable, "-I", "-S", "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def tally(callers: list[Caller]) -> Counter[str]:
    return Counter(caller.ended for caller in callers)


def in_parts(chance: random.Random) -> int:
    """Characters of an item: mostly a token's, now and then more than a packet, or than the window."""
    return chance.choice([5] * 12 + [3000, 30_000, 70_000, STREAM_WINDOW + 1000])
