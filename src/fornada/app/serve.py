"""Main, the process of `fornada serve`: holds the data directory, starts the keeper, forwards signals, cleans up.

It does as little as it can: what could fail has been given to processes below it, and it stays to see them gone.
"""

import contextlib
import errno
import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import fornada
import fornada_sdk.wire
from fornada.app import data_directory, isolation
from fornada.app.data_directory import DataDirectoryRefused
from fornada.core.settings import Settings
from fornada.keeper import children, config, namespaces, probes
from fornada.keeper.cgroups import place, tree
from fornada.keeper.cgroups.files import CgroupError
from fornada.keeper.levels import Level, Refused, choose
from fornada.keeper.loop import LONGEST_POLL_S
from fornada.keeper.say import say
from fornada_sdk.wire import channel
from fornada_sdk.wire.channel import Channel, ChannelClosed
from fornada_sdk.wire.framing import ProtocolError
from fornada_sdk.wire.messages import Kind

BACKLOG = 2048
"""Connections that wait while no control plane accepts; the kernel may bound it lower (net.core.somaxconn)."""
KEEPER_CODE = "import sys; sys.path[:0] = sys.argv[1:-1]; from fornada.keeper.main import main; main()"
KEEPER_SPARE_S = 5.0
"""What the keeper may take beyond the times that it promises, before main ends it."""
SWEEP_S = 3.0
ASKING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StartRefused(Exception):
    """The node can't start. The message is one line: whose fault, and what to do."""


class _Walls(NamedTuple):
    """What keeps models apart."""

    config: config.WallsConfig
    in_users: bool
    """All of it is made in a user namespace, for want of rights."""


def serve(settings: Settings, *, control: Sequence[str] = (), nested: bool = True) -> int:
    """Runs a node until it is asked to end; the exit code: 0 after a drain, 1 otherwise, with one line on stderr.

    For tests: `control` is another program to run as the control plane, `nested` False does without a pid namespace.
    """
    _open_standard_descriptors()
    os.umask(0o077)
    folder = Path(settings.data_dir).absolute()
    try:
        with _Bell() as bell, data_directory.locked(folder) as lock, _walls(settings.isolation, folder, nested=nested) as walls:
            closed = "" if control else isolation.closed_to_models(walls.config, folder)  # else it isn't our Python that models get
            if closed:
                raise StartRefused(f"isolation {walls.config.level} can't be had: {closed}; {isolation.OPEN_UP}")
            with contextlib.ExitStack() as stack:
                listeners = [stack.enter_context(listener) for listener in _listen(settings.host, settings.port)]
                _check_grpc_port(settings)
                given = msgspec.json.encode(msgspec.structs.replace(settings, data_dir=str(folder)))
                argv = list(control) or [sys.executable, "-I", "-m", "fornada.app.control"]
                keeper = _Keeper(settings, given, argv, listeners=listeners, lock=lock, walls=walls, nested=nested)
                # The keeper alone holds the sockets: once it has closed them, callers are refused and don't wait.
            code = keeper.wait(bell)
            if not keeper.nested:
                _sweep()
            return code
    except DataDirectoryRefused as refusal:
        say(str(refusal))
    except StartRefused as refusal:
        for line in str(refusal).splitlines():
            say(line)
    return 1


@contextlib.contextmanager
def _walls(wanted: str, folder: Path, *, nested: bool) -> Iterator[_Walls]:
    """Chooses what keeps models apart, and makes the node's own place among the cgroups. Raises StartRefused."""
    facts = probes.look(ours=[os.getpid()])
    choice = choose(wanted, facts if nested else isolation.without_namespaces(facts))
    if isinstance(choice, Refused):
        raise StartRefused("\n".join(choice.lines()))
    node = tree.node_name(folder)
    run_dir = folder / "run"
    told = isolation.walls(choice.level, facts, node=node, run_dir=str(run_dir))
    found = place.find(node, ours=[os.getpid()]) if choice.level is Level.FULL else None
    if not isinstance(found, place.Place):
        yield _Walls(told, in_users=choice.level is Level.NAMESPACES and not facts.privileged)
        return
    try:
        # In version 2 we must be in the leaf ourselves, before the keeper that is forked there divides what is above it.
        groups = tree.Tree(found, node)
    except CgroupError as error:
        raise StartRefused(f"isolation {choice.level} can't be had: {error}") from None
    try:
        yield _Walls(told, in_users=not facts.privileged)
    finally:
        _remove(groups)


def _remove(groups: tree.Tree) -> None:
    """The keeper has ended; if it was killed, its groups are still there, and their processes may be dying."""
    until = time.monotonic() + SWEEP_S
    with contextlib.suppress(CgroupError):
        while groups.sweep() and time.monotonic() < until:
            time.sleep(0.005)
        groups.close()


class _Bell:
    """Signals as bytes in a socket, so that one poll waits for all there is."""

    def __enter__(self) -> "_Bell":
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        self._before = {number: signal.signal(number, _noted) for number in (*ASKING, signal.SIGCHLD)}
        self._wakeup_before = signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(self, *exception: object) -> None:
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._read.close()
        self._write.close()

    def fileno(self) -> int:
        return self._read.fileno()

    def numbers(self) -> bytes:
        """The signals since the last call; equal ones that came together may be one."""
        with contextlib.suppress(BlockingIOError):
            return self._read.recv(4096)
        return b""


class _Keeper:
    """The keeper's process, as main sees it."""

    def __init__(
        self,
        settings: Settings,
        given: bytes,
        control: list[str],
        *,
        listeners: list[socket.socket],
        lock: int,
        walls: _Walls,
        nested: bool,
    ) -> None:
        """Starts it. Raises StartRefused."""
        self._node = settings.node
        self._up = False
        self._asked = 0
        self._end_at: float | None = None
        ours, theirs = channel.pair()
        self._channel = Channel(ours, queue_bytes=65536, body_bytes=65536)
        with theirs, contextlib.ExitStack() as stack:
            settings_file = stack.enter_context(memory_file("fornada-settings", given))
            apart = namespaces.children_in_new_pid_namespace(with_users=walls.in_users)
            self.nested = stack.enter_context(apart) if nested else False
            if walls.in_users and not self.nested:
                raise StartRefused(f"isolation {walls.config.level} can't be had after all; 'fornada doctor' shows what is missing")
            if not self.nested:
                namespaces.become_subreaper()
            told = config.Config(
                main_pid=os.getpid(),
                main_socket=theirs.fileno(),
                listeners=[listener.fileno() for listener in listeners],
                settings=settings_file,
                lock=lock,
                control_argv=control,
                nested=self.nested,
                drain_s=settings.node.drain_s,
                kill_s=settings.node.kill_s,
                grace_s=settings.node.grace_s,
                walls=walls.config,
            )
            told_file = stack.enter_context(memory_file("fornada-keeper", config.dump(told)))
            roots = {str(Path(module.__file__ or "").parents[up]) for module, up in ((fornada, 1), (fornada_sdk.wire, 2))}
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-X", "utf8", "-c", KEEPER_CODE, *sorted(roots), str(told_file)],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[told.main_socket, *told.listeners, told.settings, told.lock, told_file],
                    start_new_session=True,  # a terminal's Ctrl-C is main's alone
                )
            except OSError as error:
                raise StartRefused(f"the keeper can't be started with {sys.executable}: {error.strerror}") from None

    def wait(self, bell: _Bell) -> int:
        """Forwards signals until the keeper has ended; main's exit code."""
        with contextlib.closing(self._channel):
            poll = select.poll()
            poll.register(bell, select.POLLIN)
            poll.register(self._channel, select.POLLIN)
            while (status := self._reap()) is None:
                ready = dict(poll.poll(self._timeout_ms()))
                if self._channel.fileno() in ready and not self._listen():
                    poll.unregister(self._channel)
                for number in bell.numbers():
                    if number in ASKING:
                        self._ask(signal.Signals(number).name)
                if self._end_at is not None and time.monotonic() >= self._end_at:
                    self._process.kill()
                    self._end_at = None
            self._listen()
        return self._explained(status)

    def _ask(self, reason: str) -> None:
        """The first time to drain, then to end at once."""
        self._asked += 1
        drain = self._asked == 1
        node = self._node
        patience_s = (node.drain_s + 2 * node.kill_s if drain else 0.0) + KEEPER_SPARE_S
        self._end_at = time.monotonic() + patience_s
        with contextlib.suppress(ChannelClosed, channel.QueueFull):
            self._channel.send(Kind.DRAIN, {"reason": reason, "deadline_s": node.drain_s, "now": not drain})

    def _listen(self) -> bool:
        """False once the keeper has closed its end."""
        try:
            for message in self._channel.receive():
                self._up = self._up or message.kind == Kind.WELCOME
        except (ChannelClosed, ProtocolError):
            return False
        return True

    def _reap(self) -> int | None:
        """The keeper's exit code, negative for a signal; None while it lives. Takes in everybody else's too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return self._process.returncode
            if pid == 0:
                return None
            if pid == self._process.pid:
                self._process.returncode = os.waitstatus_to_exitcode(status)
                return self._process.returncode

    def _timeout_ms(self) -> float | None:
        return None if self._end_at is None else min(max(0.0, self._end_at - time.monotonic()), LONGEST_POLL_S) * 1000

    def _explained(self, status: int) -> int:
        if status < 0:
            say(f"the keeper (pid {self._process.pid}) was killed by signal {-status}: all that it started has ended; start the node again")
        elif not self._up:
            say(f"the keeper couldn't start (exit code {status}); the reason should stand above, 'fornada doctor' shows what is missing")
        return 0 if status == 0 else 1


def _noted(number: int, frame: object) -> None:
    """The bell has rung already."""


def _listen(host: str, port: int) -> list[socket.socket]:
    """Listening sockets, one for each address of the host. Raises StartRefused."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise StartRefused(f"the host '{host}' has no address ({error.strerror}); choose another with --host") from None
    listeners: list[socket.socket] = []
    for family, _, _, _, address in dict.fromkeys(found):
        number = listeners[0].getsockname()[1] if listeners else port  # port 0: one number for all addresses
        try:
            listeners.append(_bound(family, (address[0], number, *address[2:])))
        except OSError as error:
            if listeners and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                continue  # a second address that this machine doesn't have, such as ::1 of localhost
            for listener in listeners:
                listener.close()
            raise _cant_listen(host, port, error) from None
    return listeners


def _check_grpc_port(settings: Settings) -> None:
    """Raises StartRefused where it is taken: the control planes share it with one another (SO_REUSEPORT), and wouldn't notice a stranger."""
    port = settings.server.grpc_port
    if not port:
        return
    try:
        found = _listen(settings.host, port)
    except StartRefused:
        raise StartRefused(f"port {port} of [server] grpc_port can't be had on {settings.host}: is another program there?") from None
    for listener in found:
        listener.close()


def _bound(family: int, address: tuple[Any, ...]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _cant_listen(host: str, port: int, error: OSError) -> StartRefused:
    match error.errno:
        case errno.EADDRINUSE:
            return StartRefused(
                f"port {port} on {host} is in use by another program; choose another with --port or FORNADA_PORT (0 takes any)"
            )
        case errno.EACCES:
            return StartRefused(
                f"port {port} on {host} may not be used by uid {os.geteuid()}; choose one above 1023 with --port or FORNADA_PORT"
            )
        case _:
            return StartRefused(f"can't listen on {host}, port {port}: {error.strerror}; choose others with --host and --port")


@contextlib.contextmanager
def memory_file(name: str, content: bytes) -> Iterator[int]:
    """A sealed file without a name on any disk."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.write(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
        yield descriptor
    finally:
        os.close(descriptor)


def _open_standard_descriptors() -> None:
    """Somebody may have started us with some of them closed; the next file that is opened must not take their place."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _sweep() -> None:
    """Without a namespace: what the keeper left behind has become our child, and is ended."""
    until = time.monotonic() + SWEEP_S
    while children.end_strays({}, set()) and time.monotonic() < until:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.002)
