"""A keeper as small as can be around a real zygote process."""

import contextlib
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

from fornada_sdk.wire.channel import Channel, ChannelClosed, Message, pair
from fornada_sdk.wire.messages import Kind
from tests.bounds import bound
from tests.unit.sdk.driver import SRC, Plane

BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from fornada_sdk.runner.zygote import main; main()"
QUIET = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
LIMITS = {"memory_bytes": 0, "open_files": 256, "processes": 0, "file_bytes": 0, "core_bytes": 0, "nice": 0}


class Forked:
    """A runner that the zygote was asked for: the keeper's ends of what it has."""

    def __init__(self, name: str, keeper: Channel, output: int, report: int) -> None:
        self.name = name
        self.keeper = keeper
        self.pidfd = -1
        self._output = output
        self._report = report
        self.planes: list[Plane] = []

    def report(self, seconds: float = 10.0) -> str:
        """Why its program doesn't execute; empty once it does."""
        text = b""
        while select.select([self._report], [], [], bound(seconds))[0]:
            piece = os.read(self._report, 4096)
            if not piece:
                return text.decode()
            text += piece
        raise AssertionError(f"{self.name} doesn't report")

    def assign(self, folder: Path, **assignment: Any) -> None:
        given = {"instance": self.name, "model": "@test/m", "engine": "python", "folder": str(folder), "scratch": str(folder)}
        self.keeper.send(Kind.ASSIGN, {**given, "release": "0", **assignment})

    def attach(self) -> Plane:
        ours, theirs = pair()
        self.keeper.send(Kind.ATTACH, {"epoch": len(self.planes) + 1}, [theirs.detach()])
        self.planes.append(Plane(ours, len(self.planes) + 1))
        return self.planes[-1]

    def ended(self, seconds: float = 10.0) -> bool:
        return bool(select.select([self.pidfd], [], [], bound(seconds))[0])

    @property
    def outer(self) -> int:
        """Its pid as we see it."""
        lines = Path(f"/proc/self/fdinfo/{self.pidfd}").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Pid:")).split()[1])

    def said(self) -> str:
        """All that it has printed so far."""
        os.set_blocking(self._output, False)
        with contextlib.suppress(BlockingIOError):
            return os.read(self._output, 1 << 20).decode(errors="replace")
        return ""

    def close(self) -> None:
        for plane in self.planes:
            plane.close()
        self.keeper.close()
        for descriptor in (self._output, self._report, self.pidfd):
            if descriptor >= 0:
                os.close(descriptor)


class Zygote:
    """One zygote process. `messages` are all that it has said."""

    def __init__(self, *modules: str, python: str | Path = sys.executable, env: dict[str, str] | None = None) -> None:
        ours, theirs = pair()
        self.channel = Channel(ours, queue_bytes=1 << 24, body_bytes=1 << 20, descriptors=8)
        self.errors, errors = os.pipe()
        with open(os.devnull) as nothing:
            self.pid = os.posix_spawn(
                python,
                [str(python), "-I", "-B", "-c", BOOT, str(SRC), *modules],
                {"PATH": os.environ["PATH"], **QUIET, **(env or {})},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, nothing.fileno(), 0),
                    (os.POSIX_SPAWN_DUP2, errors, 1),
                    (os.POSIX_SPAWN_DUP2, errors, 2),
                    (os.POSIX_SPAWN_DUP2, theirs.fileno(), 3),
                ],
                setsid=True,
            )
        self._pidfd = os.pidfd_open(self.pid)
        self._exit: int | None = None
        os.close(errors)
        theirs.close()
        self.messages: list[Message] = []
        self._gone = False
        self.children: dict[str, Forked] = {}
        self._null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)

    def hear(self, kind: Kind, name: str = "", seconds: float = 30.0) -> dict[str, Any]:
        """The head of the first such message. Fails with what came instead."""
        limit = time.monotonic() + bound(seconds)
        while True:
            for message in self.messages:
                if message.kind == kind and message.head.get("name", "") == name:
                    return message.head
            left = limit - time.monotonic()
            assert not self._gone, f"it has gone ({self.exit_code()}): {self.said()}"
            assert left > 0, f"no {kind.name} {name}: {self.messages}"
            select.select([self.channel.fileno()], [], [], left)
            try:
                for message in self.channel.receive():
                    if message.kind == Kind.FORKED and message.descriptors:
                        self.children[message.head["name"]].pidfd = message.descriptors[0]
                    self.messages.append(message)
            except ChannelClosed:
                self._gone = True

    def exit_code(self, seconds: float = 10.0) -> int:
        if self._exit is None:
            assert select.select([self._pidfd], [], [], bound(seconds))[0], f"still alive: {self.said()}"
            self._exit = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._exit

    def said(self) -> str:
        os.set_blocking(self.errors, False)
        with contextlib.suppress(BlockingIOError):
            return os.read(self.errors, 65536).decode(errors="replace")
        return ""

    def order(self, name: str, descriptors: tuple[int, ...] = (), **order: Any) -> Forked:
        """Asks for a child, without waiting for it. `descriptors` are the plan's, given away."""
        ours, theirs = pair()
        output, written = os.pipe()
        report, told = os.pipe()
        child = Forked(name, Channel(ours, queue_bytes=1 << 24, body_bytes=1 << 16), output, report)
        self.children[name] = child
        head = {"name": name, "apart": False, "spare": False, "env": {"PATH": "/bin"}, "cwd": "/", "limits": LIMITS, **order}
        given = [os.dup(self._null), written, theirs.detach(), told, *descriptors]
        self.channel.send(Kind.FORK, head, given)
        return child

    def fork(self, name: str, descriptors: tuple[int, ...] = (), **order: Any) -> Forked:
        """A child that executes."""
        child = self.order(name, descriptors, **order)
        head = self.hear(Kind.FORKED, name)
        assert "reason" not in head, head
        assert child.report() == ""
        return child

    def end(self) -> None:
        """As a keeper that goes."""
        self.channel.close()
        for child in self.children.values():
            child.close()
        with contextlib.suppress(ProcessLookupError):
            if not select.select([self._pidfd], [], [], bound(5))[0]:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        self.exit_code()
        os.close(self._pidfd)
        os.close(self.errors)
        os.close(self._null)


def killed(child: Forked) -> None:
    signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
