"""A runner without a process: speaks the wire on a real socket, in the test's own event loop and in its time.

What it does is said by a Behaviour (how it loads and ends) and by each request's JSON, in the words of the probe model:
echo, sleep_s, steps + step_s, die, bad, raises, oom, stuck_s (a sleep that nothing interrupts), big (bytes).
`oom_loads`: only so many processes of the model run out of memory.
"""

import asyncio
import dataclasses
import json
import os
import signal
import socket
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from fornada.core.ports import ExitStatus, KeeperLost, Launch
from fornada_sdk.wire.framing import MAX_PACKET, MORE, Assembler, frame, frames, pack, split
from fornada_sdk.wire.messages import (
    CREDIT_BODY,
    INVOKE_PREFIX,
    STREAM_WINDOW,
    WIRE_VERSION,
    Kind,
    decode,
    encode,
    with_head,
)


@dataclass
class Behaviour:
    """How a runner's life goes."""

    load_s: float = 0.1
    warmup_s: float = 0.0
    fails: str = ""
    """Why its load fails; empty: it doesn't."""
    fails_because_of: str = "load"
    never_ready: bool = False
    progress_every_s: float = 0.0
    dies_loading: bool = False
    ignores_sigterm: bool = False
    stop_s: float = 0.0
    ahead: int = 0
    books: int = 0
    books_after_s: float = 0.0
    prints: bytes = b""
    dies_idle_after_s: float = 0.0
    sleeps: bool = False
    sleep_s: float = 0.1
    wake_s: float = 0.1
    fails_to: str = ""
    """sleep | wake: that raises."""
    dies_going_to: str = ""
    """sleep | wake: it crashes on the way."""
    hello: dict[str, Any] = field(default_factory=dict)
    """What its HELLO says otherwise than it should."""


class FakeProcess:
    """core.ports.ProcessPort."""

    def __init__(self, launch: Launch, pid: int) -> None:
        self.instance = launch.instance
        self.pid = pid
        self.memo = json.loads(json.dumps(launch.memo))
        self.launch = launch
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self._ours = ours
        self.link = ours.fileno()
        self.outbound = -1
        self.start = "exec"
        self.output, self.printing = os.pipe()
        os.set_blocking(self.output, False)
        self.runner: FakeRunner
        self.first_socket = theirs
        self._ended: asyncio.Future[ExitStatus] = asyncio.get_running_loop().create_future()
        self._told: asyncio.Future[ExitStatus] = asyncio.get_running_loop().create_future()
        self.signals: list[int] = []
        self.forgotten = False

    @property
    def alive(self) -> bool:
        return not self._ended.done()

    async def exited(self) -> ExitStatus:
        return await asyncio.shield(self._told)

    def signal(self, number: int) -> None:
        if self.alive:
            self.signals.append(number)
            self.runner.signalled(number)

    def forget(self) -> None:
        assert not self.alive, "forgotten while it lives"
        assert not self.forgotten, "forgotten twice"
        self.forgotten = True
        self._ours.close()
        os.close(self.output)

    def reattached(self) -> "FakeProcess":
        """The same process as a successor gets it from the keeper. The predecessor's descriptors are closed."""
        again = FakeProcess.__new__(FakeProcess)
        again.__dict__.update(self.__dict__)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        again._ours, again.link = ours, ours.fileno()
        again.output = os.dup(self.output)
        self.runner.process = again
        self._ours.close()
        os.close(self.output)
        self.runner.attach(theirs)
        return again

    def end(self, *, code: int | None, signal: int | None, **how: bool) -> None:
        status = ExitStatus(code, signal, max_rss_bytes=17 * 1024**2, **how)
        self._ended.set_result(status)
        if not self._told.done():
            self._told.set_result(status)

    def abandon(self, lost: KeeperLost) -> None:
        """Nobody will ever hear of its end."""
        self._told.set_exception(lost)
        self._told.exception()


class FakeRunner:
    """The other end of a link."""

    def __init__(self, process: FakeProcess, behaviour: Behaviour) -> None:
        self.process = process
        self.behaviour = dataclasses.replace(behaviour)  # what befalls it is not the next one's
        self.assignment: dict[str, Any] = process.launch.assignment
        self.state = "loading"
        self.stopping = False
        self.stopped = False
        self.seen: list[dict[str, Any]] = []
        """Bodies of requests whose work began."""
        self.steps = 0
        self.cancelled: set[int] = set()
        self.acked: set[int] = set()
        self.kept: dict[int, list[bytes]] = {}
        self._credit: dict[int, int] = {}
        self._waiting: deque[tuple[int, dict[str, Any], bytes]] = deque()
        self._working: dict[int, asyncio.Task[None]] = {}
        self._facts: dict[str, Any] = {}
        self._seq = 0
        self._booked: asyncio.Future[dict[str, Any]] | None = None
        self.bookings_answered: list[int] = []
        self._held: dict[str, int] = {}
        self._aside: dict[str, int] = {}
        """Booked before it fell asleep."""
        self._socket = process.first_socket
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        process.runner = self
        self.attach(process.first_socket)
        self._start(self._live())

    # ---- life

    async def _live(self) -> None:
        behaviour = self.behaviour
        if behaviour.prints:
            os.write(self.process.printing, behaviour.prints)
        if behaviour.books:
            await self._spend(behaviour.books_after_s)
            await self._book(behaviour.books)
        if behaviour.never_ready:
            return
        await self._spend(behaviour.load_s)
        if behaviour.dies_loading:
            return self.die(signal=11)
        if behaviour.fails:
            return self._fail(behaviour.fails, behaviour.fails_because_of)
        if behaviour.warmup_s:
            self.say(Kind.PROGRESS, {"phase": "warming", "text": "warm-up", "fraction": None})
            await self._spend(behaviour.warmup_s)
        self.state = "ready"
        serving = self.assignment["serving"]
        working = serving["concurrency"] * serving["max_batch"]
        self._facts = {"load_s": behaviour.load_s, "warmup_s": behaviour.warmup_s, "streaming": True, "tensors": {}}
        self._facts["pipelining"] = working + behaviour.ahead
        if behaviour.sleeps:
            self._facts["sleeps"] = True
        self.say(Kind.READY, self._facts)
        self._work()
        if behaviour.dies_idle_after_s:
            await asyncio.sleep(behaviour.dies_idle_after_s)
            self.die(signal=11)

    async def _spend(self, seconds: float) -> None:
        step_s = self.behaviour.progress_every_s or seconds
        while seconds > 0:
            await asyncio.sleep(min(step_s, seconds))
            seconds -= step_s
            if self.behaviour.progress_every_s:
                self.say(Kind.PROGRESS, {"phase": "loading", "text": "weights", "fraction": 0.5})

    async def _book(self, count: int) -> None:
        self._booked = self._loop.create_future()
        self._question = frame(Kind.BOOK, 1, encode({"device": self.assignment["device"]["id"], "bytes": count}))
        self.send(self._question)
        answer = await self._booked
        if answer["ok"]:
            self._held[self.assignment["device"]["id"]] = count
        else:
            self.behaviour.fails, self.behaviour.fails_because_of = answer["message"], "memory"

    def _fail(self, reason: str, kind: str) -> None:
        self.say(Kind.FAILED, {"reason": reason, "kind": kind, "detail": ""})
        self.state = "failed"
        self.die(code=1)

    def signalled(self, number: int) -> None:
        if number == signal.SIGKILL:
            self.die(signal=9)
        elif number == signal.SIGSTOP:
            assert not self._working and not self._waiting, "stopped at its work"
            self.stopped = True
            self._loop.remove_reader(self._socket.fileno())
        elif number == signal.SIGCONT:
            self.stopped = False
            self._loop.add_reader(self._socket.fileno(), self._readable)
        elif not self.behaviour.ignores_sigterm:
            self._start(self._stop(cancel=True))

    async def _stop(self, *, cancel: bool = False) -> None:
        if self.behaviour.ignores_sigterm:
            return
        self.stopping = True
        if cancel:
            for id in [*self._working]:
                self.cancelled.add(id)
        while self._working or self._waiting:
            await asyncio.sleep(0.01)
        await asyncio.sleep(self.behaviour.stop_s)
        self.die(code=0)

    def die(self, *, code: int | None = None, signal: int | None = None, **how: bool) -> None:
        """`how` is what an ExitStatus says beyond the two."""
        if not self.process.alive:
            return
        for task in [*self._tasks]:
            if task is not asyncio.current_task():
                task.cancel()
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        os.close(self.process.printing)
        self.process.end(code=code, signal=signal, **how)

    # ---- the wire

    def attach(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.stopped = False
        before, self._socket = self._socket, sock
        if before is not sock:
            self._loop.remove_reader(before.fileno())
            before.close()
        self._assembler = Assembler(1 << 30)
        self._unsent: deque[bytes] = deque()
        self._loop.add_reader(sock.fileno(), self._readable)
        booked = {"booked": self._held} if self._held else {}
        self.say(
            Kind.HELLO,
            {
                "wire": WIRE_VERSION,
                "release": "",
                "instance": self.process.instance,
                "pid": self.process.pid,
                "state": "stopping" if self.stopping else self.state,
                "in_flight": [*self._working, *(id for id, _, _ in self._waiting), *self.kept],
                **self._facts,
                **booked,
                **self.behaviour.hello,
            },
        )
        for sent in self.kept.values():
            self.send(*sent)
        if self._booked is not None and not self._booked.done():
            self.send(self._question)

    def say(self, kind: Kind, message: dict[str, Any]) -> None:
        self.send(frame(kind, 0, encode(message)))

    def send(self, *messages: bytes) -> None:
        if not self.process.alive:
            return
        self._unsent.extend(pack(list(messages)))
        self._flush()

    def _flush(self) -> None:
        while self._unsent:
            try:
                self._socket.send(self._unsent[0])
            except BlockingIOError:
                self._loop.add_writer(self._socket.fileno(), self._flush)
                return
            except OSError:
                return
            self._unsent.popleft()
        self._loop.remove_writer(self._socket.fileno())

    def _readable(self) -> None:
        try:
            packet = self._socket.recv(MAX_PACKET)
        except OSError:
            return
        if not packet:
            self._loop.remove_reader(self._socket.fileno())
            return
        for kind, flags, part, id, payload in split(packet):
            if kind == Kind.PART:
                whole = self._assembler.continued(flags, part, id, payload)
                if whole is not None:
                    self._hear(whole[0], id, whole[2])
            elif flags & MORE:
                self._assembler.opened(kind, part, id, payload)
            else:
                self._hear(kind, id, bytes(payload))

    def _hear(self, kind: int, id: int, payload: bytes) -> None:
        match kind:
            case Kind.INVOKE:
                head, left_s, body = split_invoke(payload)
                assert left_s > 0
                self._waiting.append((id, decode(head), bytes(body)))
                self._work()
            case Kind.CANCEL:
                queued = [entry for entry in self._waiting if entry[0] == id]
                if queued:
                    self._waiting.remove(queued[0])
                    self._finish(id, Kind.ANSWER, with_head(encode({"status": "cancelled"})))
                self.cancelled.add(id)
            case Kind.ACK:
                for acked in memoryview(payload).cast("Q"):
                    self.acked.add(acked)
                    self.kept.pop(acked, None)
            case Kind.CREDIT:
                self._credit[id] = self._credit.get(id, 0) + CREDIT_BODY.unpack(payload)[0]
            case Kind.STOP:
                self._start(self._stop())
            case Kind.SLEEP:
                assert self.state == "ready" and not self._working and not self._waiting and not self.stopped, "to sleep at its work"
                self.state = "falling"
                self._start(self._rest("sleep", self.behaviour.sleep_s, Kind.SLEPT, "asleep"))
            case Kind.WAKE:
                assert self.state == "asleep"
                self.state = "waking"
                self._start(self._rest("wake", self.behaviour.wake_s, Kind.WOKEN, "ready"))
            case Kind.BOOKED:
                self.bookings_answered.append(id)
                if self._booked is not None and not self._booked.done():
                    self._booked.set_result(decode(payload))

    # ---- sleep

    async def _rest(self, way: str, takes_s: float, kind: Kind, then: str) -> None:
        await asyncio.sleep(takes_s)
        if self.behaviour.dies_going_to == way:
            return self.die(signal=11)
        if self.behaviour.fails_to == way:
            self.stopping = True
            self.say(kind, {"failed": "it raised"})
            return
        aside = sum(self._aside.values())
        if way == "wake" and aside:
            await self._book(aside)
            if not self._held:
                self.stopping = True
                self.say(kind, {"failed": "out of device memory"})
                return
        elif way == "sleep":
            self._aside, self._held = self._held, {}
        self.state = then
        self.say(kind, {})
        self._work()

    # ---- work

    def _work(self) -> None:
        serving = self.assignment["serving"]
        while self.state == "ready" and self._waiting and len(self._working) < serving["concurrency"] * serving["max_batch"]:
            id, head, body = self._waiting.popleft()
            self._working[id] = self._start(self._serve(id, head, body))

    async def _serve(self, id: int, head: dict[str, Any], body: bytes) -> None:
        try:
            asked = json.loads(body) if body.strip().startswith(b"{") else {"size": len(body)}
            self.seen.append(asked)
            await self._answer(id, head, asked)
        finally:
            self._working.pop(id, None)
            self._work()

    async def _answer(self, id: int, head: dict[str, Any], asked: dict[str, Any]) -> None:
        self._seq += 1
        about = {"instance": self.process.instance, "pid": self.process.pid, "load_count": self.assignment["load_count"], "seq": self._seq}
        if asked.get("die"):
            return self.die(code=9)
        if asked.get("stuck_s"):
            await asyncio.sleep(asked["stuck_s"])
        if not await self._sleep(id, asked.get("sleep_s", 0.0)):
            return self._finish(id, Kind.ANSWER, with_head(encode({"status": "cancelled"})))
        if self.assignment["load_count"] > asked.get("oom_loads", 1 << 30):
            asked = {key: value for key, value in asked.items() if key != "oom"}
        for status in ("bad", "raises", "oom"):
            if status in asked:
                name = {"bad": "bad_request", "raises": "raised", "oom": "out_of_memory"}[status]
                return self._finish(id, Kind.ANSWER, with_head(encode({"status": name, "message": asked[status]})))
        if "steps" in asked:
            return await self._stream(id, asked, about)
        answer = json.dumps({**{key: asked[key] for key in ("echo", "size") if key in asked}, **about}).encode()
        if "big" in asked:
            answer = b'"' + b"x" * asked["big"] + b'"'
        self._finish(id, Kind.ANSWER, with_head(b"{}"), answer)

    async def _stream(self, id: int, asked: dict[str, Any], about: dict[str, Any]) -> None:
        self.send(frame(Kind.STREAM, id, with_head(b"{}")))
        sent = 0
        for number in range(asked["steps"]):
            if asked.get("die_at") == number:
                return self.die(code=9)
            item = json.dumps({"step": number, "pad": "x" * asked.get("pad", 0), **about}).encode()
            while sent - self._credit.get(id, 0) >= STREAM_WINDOW:
                if id in self.cancelled:
                    return self._finish(id, Kind.END, encode({"status": "cancelled"}))
                await asyncio.sleep(0.01)
            self.send(*frames(Kind.ITEM, Kind.PART, id, b"", [item], part=number))
            sent += len(item)
            self.steps += 1
            if not await self._sleep(id, asked.get("step_s", 0.0)):
                return self._finish(id, Kind.END, encode({"status": "cancelled"}))
        self._finish(id, Kind.END, b"{}")

    async def _sleep(self, id: int, seconds: float) -> bool:
        """False where the caller has gone meanwhile."""
        end = self._loop.time() + seconds
        while id not in self.cancelled and self._loop.time() < end:
            await asyncio.sleep(min(0.05, end - self._loop.time()))
        return id not in self.cancelled

    def _finish(self, id: int, kind: Kind, head: bytes, body: bytes = b"") -> None:
        self.kept[id] = list(frames(kind, Kind.PART, id, head, [body]))
        self.send(*self.kept[id])

    def gives_back(self) -> None:
        """What it works on ends at once, however stuck it was."""
        for id, working in self._working.items():
            self._finish(id, Kind.ANSWER, with_head(b"{}"), b"{}")
            working.cancel()

    def _start(self, work: Any) -> asyncio.Task[Any]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def split_invoke(payload: bytes | memoryview) -> tuple[bytes, float, memoryview]:
    """(head, seconds left, body) of an INVOKE. Raises ValueError for a head longer than the payload."""
    view = memoryview(payload)
    if len(view) < INVOKE_PREFIX.size:
        raise ValueError("a payload too short for a head")
    size, left_s = INVOKE_PREFIX.unpack_from(view)
    end = INVOKE_PREFIX.size + size
    if end > len(view):
        raise ValueError(f"a head of {size} bytes in a payload of {len(view)}")
    return bytes(view[INVOKE_PREFIX.size : end]), left_s, view[end:]
