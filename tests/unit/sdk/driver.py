"""A keeper and a control plane as small as can be, around a real runner process.

Everything that arrives is kept in order; `wait` looks for it with a bound and fails with what came instead.
"""

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fornada_sdk.wire.channel import Channel, pair
from fornada_sdk.wire.framing import MORE, Assembler, frame, frames, pack, split
from fornada_sdk.wire.messages import CREDIT_BODY, Kind, decode, encode, invoke_head, split_head
from tests.bounds import bound

SRC = Path(__file__).resolve().parents[3] / "src"
BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from fornada_sdk.runner.main import main; main()"
BODY_LIMIT = 256 * 1024 * 1024


class Message(NamedTuple):
    kind: Kind
    id: int
    part: int
    payload: bytes
    at: float
    """When it arrived, monotonic seconds."""

    @property
    def json(self) -> Any:
        return decode(self.payload)

    @property
    def head(self) -> Any:
        return decode(split_head(self.payload)[0])

    @property
    def body(self) -> bytes:
        return bytes(split_head(self.payload)[1])

    @property
    def answer(self) -> Any:
        """An ANSWER's body as JSON."""
        return json.loads(self.body)


class Plane:
    """A control plane's end. A thread reads, so that the runner is never held up by a test that thinks."""

    def __init__(self, sock: socket.socket, epoch: int, *, acknowledge: bool = True, reading: bool = True) -> None:
        self.sock = sock
        self.epoch = epoch
        self.acknowledge = acknowledge
        self.messages: list[Message] = []
        self.packets = 0
        self.closed = False
        self._assembler = Assembler(BODY_LIMIT)
        self._changed = threading.Condition()
        self._counter = 0
        self._may_read = threading.Event()
        if reading:
            self._may_read.set()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    # ---- sending

    def send(self, messages: list[bytes]) -> None:
        for packet in pack(messages):
            self.sock.send(packet)

    def invoke(self, body: Any = None, *, left_s: float = 30.0, raw: bytes | None = None, id: int | None = None, **head: Any) -> int:
        if id is None:
            id = self.next_id()
        self.send(self.invocation(id, body, left_s=left_s, raw=raw, **head))
        return id

    def next_id(self) -> int:
        self._counter += 1
        return (self.epoch << 40) | self._counter

    @staticmethod
    def invocation(id: int, body: Any = None, *, left_s: float = 30.0, raw: bytes | None = None, **head: Any) -> list[bytes]:
        data = raw if raw is not None else json.dumps(body if body is not None else {}).encode()
        full = {"request_id": f"r-{id & 0xFFFF}", "trace_id": "t", "account": "local", **head}
        return list(frames(Kind.INVOKE, Kind.PART, id, invoke_head(encode(full), left_s), [data]))

    def cancel(self, id: int) -> None:
        self.send([self.cancellation(id)])

    @staticmethod
    def cancellation(id: int) -> bytes:
        return frame(Kind.CANCEL, id)

    def credit(self, id: int, count: int) -> None:
        self.send([frame(Kind.CREDIT, id, CREDIT_BODY.pack(count))])

    def stop(self, grace_s: float) -> None:
        self.send([frame(Kind.STOP, 0, encode({"grace_s": grace_s}))])

    def ack(self, *ids: int) -> None:
        self.send([frame(Kind.ACK, 0, b"".join(id.to_bytes(8, "little") for id in ids))])

    def booked(self, id: int, *, ok: bool, message: str = "") -> None:
        self.send([frame(Kind.BOOKED, id, encode({"ok": ok, "message": message}))])

    def start_reading(self) -> None:
        self._may_read.set()

    # ---- receiving

    def _read(self) -> None:
        while True:
            self._may_read.wait()
            try:
                packet = self.sock.recv(65536)
            except ConnectionResetError:
                continue
            except OSError:
                packet = b""
            with self._changed:
                if not packet:
                    self.closed = True
                    self._changed.notify_all()
                    return
                self.packets += 1
                self._take(packet)
                self._changed.notify_all()

    def _take(self, packet: bytes) -> None:
        answered = []
        for kind, flags, part, id, payload in split(packet):
            data = bytes(payload)
            if kind == Kind.PART:
                whole = self._assembler.continued(flags, part, id, data)
                if whole is None:
                    continue
                kind, part, data = whole
            elif flags & MORE:
                self._assembler.opened(kind, part, id, data)
                continue
            self.messages.append(Message(Kind(kind), id, part, data, time.monotonic()))
            if kind in (Kind.ANSWER, Kind.END):
                answered.append(id)
        if answered and self.acknowledge:
            with contextlib.suppress(OSError):
                self.ack(*answered)

    def wait(self, found: Callable[[Message], bool], seconds: float = 10.0) -> Message:
        """The first message that fits, or a failure that shows what came instead."""
        with self._changed:
            end = time.monotonic() + bound(seconds)
            while True:
                for message in self.messages:
                    if found(message):
                        return message
                left = end - time.monotonic()
                if left <= 0 or self.closed:
                    came = [(m.kind.name, m.id & 0xFFFF, m.payload[:200]) for m in self.messages[-10:]]
                    raise AssertionError(f"{'closed' if self.closed else 'nothing came'}; last: {came}")
                self._changed.wait(left)

    def kind(self, kind: Kind, seconds: float = 10.0) -> Message:
        return self.wait(lambda m: m.kind is kind, seconds)

    def end_of(self, id: int, seconds: float = 10.0) -> Message:
        """The ANSWER or END of a request."""
        return self.wait(lambda m: m.id == id and m.kind in (Kind.ANSWER, Kind.END), seconds)

    def answer(self, id: int, seconds: float = 10.0) -> Any:
        """A good answer's JSON."""
        message = self.end_of(id, seconds)
        assert message.kind is Kind.ANSWER and message.head.get("status", "ok") == "ok", message
        return message.answer

    def call(self, body: Any = None, seconds: float = 10.0, **head: Any) -> Any:
        return self.answer(self.invoke(body, **head), seconds)

    def ready(self, seconds: float = 20.0) -> dict[str, Any]:
        """HELLO's or READY's fields, once the runner is ready."""
        message = self.wait(lambda m: m.kind is Kind.READY or (m.kind is Kind.HELLO and m.json["state"] == "ready"), seconds)
        return message.json

    def items(self, id: int) -> list[Message]:
        with self._changed:
            return [m for m in self.messages if m.id == id and m.kind is Kind.ITEM]

    def wait_items(self, id: int, count: int, seconds: float = 10.0) -> list[Message]:
        self.wait(lambda m: m.id == id and m.kind is Kind.ITEM and m.part >= count - 1, seconds)
        return self.items(id)

    def wait_closed(self, seconds: float = 10.0) -> None:
        self._thread.join(bound(seconds))
        assert self.closed

    def close(self) -> None:
        """As a control plane that dies."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()


class Runner:
    """A runner process, and the keeper's end of it."""

    def __init__(
        self,
        folder: Path,
        *,
        python: str = sys.executable,
        env: dict[str, str] | None = None,
        assign: bool = True,
        reading_output: bool = True,
        **assignment: Any,
    ) -> None:
        ours, theirs = pair()
        read, write = os.pipe()
        self.lines: list[str] = []
        self._lines_changed = threading.Condition()
        self._output = read
        self._collector = threading.Thread(target=self._collect, daemon=True)
        if reading_output:
            self.read_output()
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 1 << 20)
        with open(os.devnull) as nothing:
            self.pid = os.posix_spawn(
                python,
                [python, "-I", "-B", "-c", BOOT, str(SRC)],
                {"PATH": os.environ["PATH"], **(env or {})},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, nothing.fileno(), 0),
                    (os.POSIX_SPAWN_DUP2, write, 1),
                    (os.POSIX_SPAWN_DUP2, write, 2),
                    (os.POSIX_SPAWN_DUP2, theirs.fileno(), 3),
                ],
                setsid=True,
            )
        self._pidfd = os.pidfd_open(self.pid)
        self._exit: int | None = None
        os.close(write)
        theirs.close()
        self.keeper = Channel(ours, queue_bytes=1 << 24, body_bytes=1 << 16)
        self.planes: list[Plane] = []
        given = {"instance": "i-1", "model": "@test/m", "engine": "python", "folder": str(folder), "scratch": str(folder), "release": "0"}
        if assign:
            self.keeper.send(Kind.ASSIGN, {**given, **assignment})

    def attach(self, **options: Any) -> Plane:
        epoch = len(self.planes) + 1
        ours, theirs = pair()
        self.keeper.send(Kind.ATTACH, {"epoch": epoch}, [os.dup(theirs.fileno())])
        theirs.close()
        plane = Plane(ours, epoch, **options)
        self.planes.append(plane)
        return plane

    def read_output(self) -> None:
        self._collector.start()

    def close_output(self) -> None:
        os.close(self._output)

    def _collect(self) -> None:
        with os.fdopen(self._output, errors="replace", newline="\n") as stream:
            for line in stream:
                with self._lines_changed:
                    self.lines.append(line.rstrip("\n"))
                    self._lines_changed.notify_all()

    @property
    def records(self) -> list[dict[str, Any]]:
        """The structured lines of its output."""
        with self._lines_changed:
            return [json.loads(line[1:]) for line in self.lines if line.startswith("\x1e")]

    def wait_line(self, found: Callable[[str], bool], seconds: float = 10.0) -> str:
        with self._lines_changed:
            end = time.monotonic() + bound(seconds)
            while True:
                for line in self.lines:
                    if found(line):
                        return line
                left = end - time.monotonic()
                assert left > 0, self.lines[-20:]
                self._lines_changed.wait(left)

    def exit_code(self, seconds: float = 10.0) -> int:
        """As subprocess says it: negative for a signal."""
        if self._exit is None:
            assert select.select([self._pidfd], [], [], bound(seconds))[0], f"still alive after {seconds} s: {self.lines[-5:]}"
            self._exit = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._exit

    @property
    def alive(self) -> bool:
        return self._exit is None and not select.select([self._pidfd], [], [], 0)[0]

    def signal(self, number: int) -> None:
        signal.pidfd_send_signal(self._pidfd, number)

    def end(self) -> None:
        for plane in self.planes:
            plane.close()
        self.keeper.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.exit_code()
        os.close(self._pidfd)
        if self._collector.ident is not None:
            self._collector.join(bound(5))


Start = Callable[..., Runner]


@contextlib.contextmanager
def starter(tmp_path: Path) -> Iterator[Start]:
    """Starts runners of a model whose model.py is given as text; ends them all."""
    runners: list[Runner] = []

    def start(code: str = "", *, folder: Path | None = None, files: dict[str, str | bytes] | None = None, **assignment: Any) -> Runner:
        if folder is None:
            folder = tmp_path / f"model-{len(runners)}"
            folder.mkdir()
            (folder / "model.py").write_text(textwrap.dedent(code))
        for name, content in (files or {}).items():
            place = folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content if isinstance(content, bytes) else content.encode())
        runner = Runner(folder, **assignment)
        runners.append(runner)
        return runner

    try:
        yield start
    finally:
        for runner in runners:
            runner.end()
