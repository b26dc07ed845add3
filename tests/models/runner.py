"""A real runner process with one model, spoken to over the wire as a control plane does, without a node around it."""

import itertools
import json
import os
import select
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import fornada_sdk
from fornada.node.memory_use import held_by
from fornada_sdk.api_tensors import Tensor, received
from fornada_sdk.runner.received import TENSORS_TYPE
from fornada_sdk.wire.channel import Channel, pair
from fornada_sdk.wire.framing import MORE, Assembler, frame, frames, split
from fornada_sdk.wire.messages import CREDIT_BODY, Kind, decode, encode, invoke_head, split_head
from tests.bounds import bound

SDK = Path(fornada_sdk.__file__).parent.parent
START = "import sys; sys.path.insert(0, sys.argv[1]); from fornada_sdk.runner.main import main; main()"
KEEPER_FD = 3
LOAD_S = 90.0
ANSWER_S = 60.0


class Answer(NamedTuple):
    """What the runner said to one request."""

    head: dict[str, Any]
    body: bytes

    @property
    def status(self) -> str:
        return str(self.head.get("status", "ok"))

    @property
    def json(self) -> Any:
        """The answer itself; the test fails for anything but success."""
        assert self.status == "ok", self.head
        return json.loads(self.body)


class Told(NamedTuple):
    """What the runner said to one request, item by item where it was a stream."""

    head: dict[str, Any]
    items: list[Any]
    began_s: float
    """From the request to the first item."""

    @property
    def status(self) -> str:
        return str(self.head.get("status", "ok"))


class Runner:
    """One process. `ready` is what READY said."""

    def __init__(self, python: Path, assignment: Mapping[str, Any], log: Path) -> None:
        """Starts it and waits until it is ready. Raises AssertionError with its output where it isn't."""
        self.log = log
        self._ids = itertools.count(1)
        self._assembler = Assembler(64 * 1024 * 1024)
        ours, theirs = pair()
        self._keeper = Channel(ours, queue_bytes=1 << 20, body_bytes=1 << 20)
        self._link, their_link = pair()
        self.pid = _spawn(python, theirs, log)
        theirs.close()
        self._keeper.send(Kind.ASSIGN, dict(assignment))
        self._keeper.send(Kind.ATTACH, {"epoch": 1}, [their_link.detach()])
        self._messages = self._receive()
        started = time.monotonic()
        try:
            self.ready = self._wait_ready()
        except BaseException:
            self.close()
            raise
        self.ready_s = time.monotonic() - started

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def ask(self, value: Any) -> Answer:
        """JSON in."""
        return self.send(json.dumps(value).encode(), "application/json")

    def send(self, body: bytes, type: str, *, parts: list[tuple[str, int]] | None = None) -> Answer:
        """Any body in, as the edge passes it on."""
        (answer,) = self.send_all([(body, type, parts or [])])
        return answer

    def send_all(self, requests: list[tuple[bytes, str, list[tuple[str, int]]]]) -> list[Answer]:
        """Several requests at once; the answers in the same order."""
        order = [self._invoke(body, type, parts, stream=False) for body, type, parts in requests]
        answers: dict[int, Answer] = {}
        while len(answers) < len(order):
            kind, number, payload = self._next(ANSWER_S)
            if kind == Kind.ANSWER:
                head, rest = split_head(payload)
                answers[number] = Answer(decode(head) if head else {}, bytes(rest))
                self._write(frame(Kind.ACK, 0, number.to_bytes(8, "little")))
        return [answers[number] for number in order]

    def begin(self, value: Any) -> int:
        """Asks for a stream; `wait` gives what becomes of it."""
        return self._invoke(json.dumps(value).encode(), "application/json", [], stream=True)

    def wait(self, *numbers: int, cancel_after: int | None = None) -> list[Told]:
        """The whole streams, in the order of `numbers`; each is cancelled after so many items."""
        began = time.monotonic()
        items: dict[int, list[Any]] = {number: [] for number in numbers}
        first: dict[int, float] = {}
        told: dict[int, Told] = {}
        while len(told) < len(numbers):
            kind, number, payload = self._next(ANSWER_S)
            if kind == Kind.ITEM:
                first.setdefault(number, time.monotonic() - began)
                items[number].append(json.loads(payload))
                self._write(frame(Kind.CREDIT, number, CREDIT_BODY.pack(len(payload))))
                if len(items[number]) == cancel_after:
                    self.cancel(number)
            elif kind in (Kind.END, Kind.ANSWER):
                head = payload if kind == Kind.END else split_head(payload)[0]
                told[number] = Told(decode(head) if head else {}, items[number], first.get(number, 0.0))
                self._write(frame(Kind.ACK, 0, number.to_bytes(8, "little")))
        return [told[number] for number in numbers]

    def stream(self, value: Any) -> list[Any]:
        """The items of a stream that must succeed."""
        (told,) = self.wait(self.begin(value))
        assert told.status == "ok", told.head
        return told.items

    def cancel(self, number: int) -> None:
        """The caller has gone."""
        self._write(frame(Kind.CANCEL, number, b""))

    def sleep(self) -> dict[str, Any]:
        """Puts it to sleep; what SLEPT said. Raises AssertionError where it can't."""
        return self._rest(Kind.SLEEP, Kind.SLEPT)

    def wake(self) -> dict[str, Any]:
        """Wakes it up; what WOKEN said."""
        return self._rest(Kind.WAKE, Kind.WOKEN)

    def held(self) -> int:
        """Bytes of the host's memory that it holds, as a node counts them."""
        return held_by(self.pid).bytes

    def sockets(self) -> list[str]:
        """Lines of /proc/net about the sockets that the process holds, each with its family first."""
        held = set()
        for descriptor in Path(f"/proc/{self.pid}/fd").iterdir():
            try:
                target = os.readlink(descriptor)
            except FileNotFoundError:
                continue
            if target.startswith("socket:["):
                held.add(target[len("socket:[") : -1])
        lines = []
        for family, column in (("tcp", 9), ("tcp6", 9), ("udp", 9), ("udp6", 9), ("raw", 9), ("unix", 6)):
            table = Path(f"/proc/{self.pid}/net/{family}").read_text().splitlines()[1:]
            lines += [f"{family} {line}" for line in table if line.split()[column] in held]
        return lines

    def cpu_s(self) -> float:
        """Seconds of CPU time that the process has taken so far, all threads together."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> dict[str, int]:
        """MiB of the process now: Rss, Pss."""
        rollup = Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines()
        return {line.split(":")[0]: int(line.split()[1]) // 1024 for line in rollup if line.startswith(("Rss:", "Pss:"))}

    def close(self) -> None:
        """Ends it for certain."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self._keeper.close()
        self._link.close()

    def ask_tensors(self, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Tensors in, tensors out."""
        places = [[name, tensor.dtype, list(tensor.shape), len(tensor.data)] for name, tensor in given.items()]
        body = b"".join(bytes(tensor.data) for tensor in given.values())
        self._invoke(body, TENSORS_TYPE, [], stream=False, more={"tensors": {"tensors": places}})
        while True:
            kind, number, payload = self._next(ANSWER_S)
            if kind == Kind.ANSWER:
                head, rest = split_head(payload)
                self._write(frame(Kind.ACK, 0, number.to_bytes(8, "little")))
                said = decode(head)
                assert said.get("status", "ok") == "ok", said
                return dict(received(said["tensors"], bytes(rest)))

    def _invoke(self, body: bytes, type: str, parts: list[tuple[str, int]], *, stream: bool, more: Mapping[str, Any] | None = None) -> int:
        number = next(self._ids)
        said = {"request_id": f"r{number}", "trace_id": "", "account": "local", "type": type, "parts": parts, "stream": stream}
        head = encode({**said, **(more or {})})
        for packet in frames(Kind.INVOKE, Kind.PART, number, invoke_head(head, ANSWER_S), [body]):
            self._write(packet)
        return number

    def _wait_ready(self) -> dict[str, Any]:
        while True:
            kind, _, body = self._next(LOAD_S)
            head = decode(body)
            assert kind != Kind.FAILED and head.get("state") != "failed", f"{head}\n{self.output}"
            if kind == Kind.READY or head.get("state") == "ready":
                return head

    def _rest(self, order: Kind, answer: Kind) -> dict[str, Any]:
        self._write(frame(order, 0, encode({})))
        while True:
            kind, _, body = self._next(LOAD_S)
            if kind == answer:
                said: dict[str, Any] = decode(body)
                assert "failed" not in said, f"{said}\n{self.output}"
                return said

    def _write(self, packet: bytes) -> None:
        self._link.setblocking(True)
        self._link.send(packet)

    def _next(self, seconds: float) -> tuple[int, int, bytes]:
        self._until = time.monotonic() + bound(seconds)
        return next(self._messages)

    def _receive(self) -> Iterator[tuple[int, int, bytes]]:
        while True:
            left_s = self._until - time.monotonic()
            readable, _, _ = select.select([self._link], [], [], max(left_s, 0))
            assert readable, f"the runner said nothing\n{self.output}"
            packet = self._link.recv(65536)
            assert packet, f"the runner has gone\n{self.output}"
            for kind, flags, part, number, payload in split(packet):
                if kind == Kind.PART:
                    whole = self._assembler.continued(flags, part, number, payload)
                    if whole:
                        yield whole[0], number, whole[2]
                elif flags & MORE:
                    self._assembler.opened(kind, part, number, payload)
                else:
                    yield kind, number, bytes(payload)


def _spawn(python: Path, keeper: socket.socket, log: Path) -> int:
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, out, 1),
            (os.POSIX_SPAWN_DUP2, out, 2),
            (os.POSIX_SPAWN_DUP2, keeper.fileno(), KEEPER_FD),
        ]
        argv = [str(python), "-I", "-B", "-c", START, str(SDK)]
        env = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8"}
        return os.posix_spawn(python, argv, env, file_actions=actions, setsid=True)
    finally:
        os.close(out)
