"""A process that imports what the models of an environment need, once, and forks their runners from itself.

    importing --WARM--> ready --FORK--> a child (forked.py): FORKED with its pidfd, GONE once it has been reaped
        |                 ^ |
        |                 +-+
        +--UNFIT--> exit 1        the keeper gone --> exit, and in a pid namespace the end of every child

It imports and does nothing else: a thread pool, a session or a CUDA context of this process would be broken in its children. It
runs the packages of the environment, so the keeper takes all that it says for a stranger's words.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from fornada_sdk.runner import forked
from fornada_sdk.runner.rehearsal import rehearse
from fornada_sdk.sandbox import seccomp, syscalls
from fornada_sdk.sandbox.forking import fork_first
from fornada_sdk.sandbox.seccomp import Variant
from fornada_sdk.wire.channel import Channel, ChannelClosed, Message
from fornada_sdk.wire.framing import ProtocolError
from fornada_sdk.wire.messages import Kind

KEEPER_FD = 3
QUEUE_BYTES = 16 * 1024 * 1024
ORDER_BYTES = 16 * 1024 * 1024
DESCRIPTORS = 250
"""In one order; below the kernel's bound for a message."""
OWN_MODULES = (
    *("fornada_sdk.runner.main", "fornada_sdk.runner.invoke.inline", "fornada_sdk.runner.invoke.threads"),
    *("fornada_sdk.runner.invoke.asynchronous", "random"),
)
"""Every runner's. Last: what a library does at its import must not meet modules of ours that other runners don't have by then."""
THREADS_LEFT_PARKED = {"onnxruntime": 1}
"""Threads that a library's import leaves and that its children were seen to do without."""
SETTLE_S = 0.5
"""What a thread that only helped with an import has to end."""
REHEARSAL = "fornada_sdk.runner.rehearsal"
"""Stands among what couldn't be imported where it failed: children start all the same, later."""
UNFIT_EXIT = 1
LOST_EXIT = 70
REASON_LONGEST = 500


class Imported(NamedTuple):
    """What came of the imports."""

    modules: list[str]
    failed: dict[str, str]
    """Module -> why."""
    threads: int
    import_s: float


class Unfit(Exception):
    """What was imported makes this process no zygote; the message says which import it was."""


def main() -> NoReturn:
    """`argv` is the folder of the SDK, then the modules to import, in their order."""
    sock = socket.socket(fileno=KEEPER_FD)
    os.set_inheritable(KEEPER_FD, False)
    with contextlib.suppress(OSError):
        syscalls.set_name("fornada-zygote")
    keeper = Channel(sock, queue_bytes=QUEUE_BYTES, body_bytes=ORDER_BYTES, descriptors=DESCRIPTORS)
    try:
        imported = import_all(sys.argv[2:])
    except Unfit as unfit:
        keeper.send(Kind.UNFIT, {"reason": str(unfit)[:REASON_LONGEST]})
        os._exit(UNFIT_EXIT)
    zygote = Zygote(keeper)
    _do_once_what_each_child_would()
    try:
        rehearse()
    except Exception as error:  # noqa: BLE001 - among an environment's modules, which may have changed what we call
        imported.failed[REHEARSAL] = f"{type(error).__name__}: {error}"[:REASON_LONGEST]
    keeper.send(Kind.WARM, imported._asdict())
    zygote.serve()


def import_all(names: Sequence[str]) -> Imported:
    """Raises Unfit. A module that can't be imported is noted: the model that needs it will say so in its own words."""
    began = time.monotonic()
    done: list[str] = []
    failed: dict[str, str] = {}
    for name in (*names, *OWN_MODULES):
        try:
            importlib.import_module(name)
        except BaseException as error:  # noqa: BLE001 - the boundary with an environment's code
            failed[name] = f"{type(error).__name__}: {error}"[:REASON_LONGEST]
        else:
            done.append(name)
        _refuse_threads(name)
    if "numpy" in sys.modules:
        importlib.import_module("numpy.random")  # numpy 2 does that at its first use, 25 ms in each child
    return Imported(done, failed, threads(), round(time.monotonic() - began, 6))


def _do_once_what_each_child_would() -> None:
    """Each of these takes milliseconds and a megabyte, which is shared once it is here."""
    for variant in (Variant.USUAL, Variant.NETWORK, Variant.WATCHED, Variant.WATCHED_NETWORK):
        seccomp.program(variant)
    if "ssl" in sys.modules:
        sys.modules["ssl"].RAND_add(os.urandom(32), 32.0)


def threads() -> int:
    """All of this process, those of C libraries too."""
    return len(os.listdir("/proc/self/task"))


def _refuse_threads(name: str) -> None:
    """A child has the forking thread alone, and whatever waits for one of the others then waits for ever."""
    expected = 1 + sum(count for module, count in THREADS_LEFT_PARKED.items() if module in sys.modules)
    deadline = time.monotonic() + SETTLE_S
    while (found := threads()) > expected:
        if time.monotonic() > deadline:
            raise Unfit(f"the import of {name} left {found - expected} threads running")
        time.sleep(0.005)


class Zygote:
    """Carries the keeper's orders out, one after the other."""

    def __init__(self, keeper: Channel) -> None:
        self._keeper = keeper
        self._own = os.pidfd_open(os.getpid())
        self._epoll = select.epoll()
        self._writing = False
        self._names: dict[int, str] = {}
        """Of the children, by pid."""
        self._pidfds: dict[int, int] = {}
        """Pidfd -> pid."""
        self._epoll.register(keeper.fileno(), select.EPOLLIN)

    def serve(self) -> NoReturn:
        """Until the keeper closes the channel."""
        while True:
            for descriptor, _ in self._epoll.poll():
                if descriptor in self._pidfds:
                    self._forget(descriptor)
            self._reap()
            try:
                for message in self._keeper.receive():
                    self._heard(message)
                self._keeper.flush()
            except (ChannelClosed, ProtocolError):
                os._exit(LOST_EXIT)
            self._arm()

    def _heard(self, message: Message) -> None:
        if message.kind == Kind.FORK:
            self._fork(message.head, message.descriptors)
        for descriptor in message.descriptors:
            os.close(descriptor)

    def _fork(self, order: dict[str, Any], descriptors: list[int]) -> None:
        name = str(order["name"])
        for stream in (sys.stdout, sys.stderr):
            stream.flush()  # what stands in a buffer would be written by each child again
        try:
            pid = fork_first() if order["apart"] else os.fork()
        except OSError as error:
            self._keeper.send(Kind.FORKED, {"name": name, "reason": f"can't fork: {error.strerror or error}"})
            return
        if pid == 0:
            try:
                forked.become(order, descriptors, zygote=self._own)
            except BaseException:  # noqa: BLE001 - the zygote's own loop must never go on in a child
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(forked.FAILED_EXIT)
        self._names[pid] = name
        pidfd = os.pidfd_open(pid)
        self._pidfds[pidfd] = pid
        self._epoll.register(pidfd, select.EPOLLIN)
        self._keeper.send(Kind.FORKED, {"name": name}, [os.dup(pidfd)])

    def _forget(self, pidfd: int) -> None:
        """What it started and left behind goes, where it had no pid namespace of its own: that number is still its group's."""
        with contextlib.suppress(OSError):
            os.killpg(self._pidfds.pop(pidfd), signal.SIGKILL)
        self._epoll.unregister(pidfd)
        os.close(pidfd)

    def _reap(self) -> None:
        """All that have ended: in a pid namespace also what a library started at its import and left alone."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            name = self._names.pop(pid, None)
            if name is None:
                continue
            signalled = os.WIFSIGNALED(status)
            end = {
                "name": name,
                "status": None if signalled else os.WEXITSTATUS(status),
                "signal": os.WTERMSIG(status) if signalled else None,
                "max_rss_bytes": usage.ru_maxrss * 1024,
                "cpu_s": round(usage.ru_utime + usage.ru_stime, 6),
            }
            self._keeper.send(Kind.GONE, end)

    def _arm(self) -> None:
        if self._keeper.waiting != self._writing:
            self._writing = self._keeper.waiting
            events = select.EPOLLIN | select.EPOLLOUT if self._writing else select.EPOLLIN
            self._epoll.modify(self._keeper.fileno(), events)
