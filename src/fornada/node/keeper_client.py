"""The control plane's side of the keeper: starts runners and builds through it, and finds those of a predecessor.

`connect` speaks with the keeper over the inherited SEQPACKET socket until everything it kept has been given back; then the
KeeperClient is core.ports' KeeperPort, and its `adopted` are the runners, live or ended, that the predecessor left.
"""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from fornada.core.ports import ExitStatus, KeeperLost, Launch, Limits, Sandbox, SpawnRefused, ZygoteOrder
from fornada.node.runner_process import RunnerProcess
from fornada_sdk.wire.channel import DESCRIPTORS_MOST, Channel, ChannelClosed, Message, QueueFull
from fornada_sdk.wire.framing import ProtocolError
from fornada_sdk.wire.messages import WIRE_VERSION, Kind

QUEUE_BYTES = 256 * 1024 * 1024
MESSAGE_BYTES = 64 * 1024 * 1024
"""One message from the keeper: a memo is the largest."""
CONNECT_S = 10.0
BUILD_END_S = 5.0
"""How long a cancelled build's caller waits for its processes to be gone."""
RETRY_S = 0.05


async def connect(fd: int, *, release: str = "", refused: str = "", wait_s: float = CONNECT_S) -> "KeeperClient":
    """Takes the socket over, and waits until the keeper gives this control plane its place. With `refused`, the reason why it won't
    take it, it is never given. Raises KeeperLost."""
    client = KeeperClient(socket.socket(fileno=fd))
    client.tell(Kind.PRESENT, {"release": release, "wire": WIRE_VERSION, "refused": refused})
    try:
        async with asyncio.timeout(wait_s):
            await client.welcomed()
    except TimeoutError:
        client.close()
        raise KeeperLost(f"the keeper didn't tell what it holds within {wait_s:g} s") from None
    return client


class Replacing(Protocol):
    """What is done here while another control plane takes this one's place, in this order: `let_go`, then one of the others."""

    def let_go(self, patience_s: float) -> None:
        """To be answered by KeeperClient.released, once nothing is half done, or by KeeperClient.refuse_handover."""

    def resume(self, reason: str) -> None:
        """There is no successor; `reason` says why, as far as the keeper told."""

    def leave(self) -> None:
        """The successor serves."""


class _Build:
    """One build that somebody here waits for."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[ExitStatus] = asyncio.get_running_loop().create_future()


class KeeperClient:
    """core.ports.KeeperPort. Belongs to the running event loop."""

    def __init__(self, sock: socket.socket) -> None:
        self.epoch = 0
        self.keeper_pid = 0
        self.main_pid = 0
        self.control_pid = 0
        self.isolation = ""
        """The level that children are kept apart at."""
        self.listeners: list[socket.socket] = []
        """The node's listening sockets, non-blocking; another control plane may hold them too, so never shut one down."""
        self.adopted: list[RunnerProcess] = []
        """What the predecessor left: who is adopted is in `memo`. Ended ones too; their `exited` returns at once."""
        self.zygotes: list[Mapping[str, Any]] = []
        """What was told of zygotes before somebody set `on_zygote`."""
        self.adopted_builds: list[str] = []
        """Builds that go on from a predecessor; `build` with the same name and command joins one, `end_build` ends one."""
        self.on_zygote: Callable[[Mapping[str, Any]], None] = self.zygotes.append
        """Told of each change of a zygote."""
        self.on_lost: Callable[[KeeperLost], None] = _ignore_loss
        self.replacing: Replacing | None = None
        """Set once this control plane could be replaced."""
        self.predecessor = False
        """Another control plane still answers over links of its own."""
        self.on_left: Callable[[], None] = lambda: None
        """Told when it has ended."""
        self.connections: list[int] = []
        """Descriptors that a predecessor gave before somebody set `on_connection`."""
        self.on_connection: Callable[[int], None] = self.connections.append
        """Given a predecessor's connection, as a descriptor."""
        self._held: list[tuple[Kind, dict[str, Any]]] | None = None
        """What would have been said since `released`."""
        self._loop = asyncio.get_running_loop()
        self._on_drain: Callable[[str, float], None] | None = None
        self._drain: tuple[str, float] | None = None
        self._welcome: asyncio.Future[None] = self._loop.create_future()
        self._due = 0
        self._processes: dict[str, RunnerProcess] = {}
        self._spawning: dict[str, asyncio.Future[RunnerProcess]] = {}
        self._builds: dict[str, _Build] = {}
        self._writing = False
        self._channel = Channel(sock, queue_bytes=QUEUE_BYTES, body_bytes=MESSAGE_BYTES, descriptors=DESCRIPTORS_MOST)
        self._loop.add_reader(self._channel.fileno(), self._readable)

    # ---- KeeperPort

    async def spawn(self, launch: Launch) -> RunnerProcess:
        """Raises SpawnRefused, KeeperLost. Cancelled, it leaves no runner behind."""
        if launch.instance in self._processes or launch.instance in self._spawning:
            raise SpawnRefused(f"'{launch.instance}' is there already")
        started: asyncio.Future[RunnerProcess] = self._loop.create_future()
        self._spawning[launch.instance] = started
        head = {
            "instance": launch.instance,
            "argv": launch.argv,
            "env": launch.env,
            "cwd": launch.cwd,
            "limits": msgspec.structs.asdict(launch.limits),
            "sandbox": msgspec.to_builtins(launch.sandbox),
            "assignment": launch.assignment,
            "memo": launch.memo,
            "host": launch.host,
            "zygote": launch.zygote,
            "outbound": launch.outbound,
        }
        try:
            self._order(Kind.SPAWN, head)
        except (SpawnRefused, KeeperLost):
            del self._spawning[launch.instance]
            raise
        return await started  # when the await is cancelled the future is too, and `_spawned` gives the runner back

    def want_zygote(self, order: ZygoteOrder) -> None:
        """What becomes of it is told to `on_zygote`."""
        sandbox = msgspec.to_builtins(order.sandbox)
        self.tell(Kind.ZYGOTE, {**msgspec.structs.asdict(order), "limits": msgspec.structs.asdict(order.limits), "sandbox": sandbox})

    def retire_zygote(self, zygote: str) -> None:
        """It ends with its last instance."""
        self.tell(Kind.RETIRE, {"zygote": zygote})

    async def build(
        self, build: str, *, argv: Sequence[str], env: Mapping[str, str], cwd: str, limits: Limits, sandbox: Sandbox, log: str
    ) -> ExitStatus:
        """Raises SpawnRefused, KeeperLost. A build of that name and command that a predecessor began is joined, not begun again."""
        if build in self._builds:
            raise SpawnRefused(f"the build '{build}' runs already")
        mine = _Build()
        self._builds[build] = mine
        head = {
            "build": build,
            "argv": list(argv),
            "env": dict(env),
            "cwd": cwd,
            "limits": msgspec.structs.asdict(limits),
            "sandbox": msgspec.to_builtins(sandbox),
            "log": log,
        }
        try:
            self._order(Kind.BUILD, head)
            status = await asyncio.shield(mine.ended)
        except asyncio.CancelledError:
            self.end_build(build)
            try:
                await asyncio.wait([mine.ended], timeout=BUILD_END_S)
            finally:
                self.tell(Kind.FORGET, {"build": build})
            raise
        finally:
            del self._builds[build]
            mine.ended.cancel()
        self.tell(Kind.FORGET, {"build": build})
        return status

    # ---- beyond the port

    def end_build(self, build: str) -> None:
        """Kills a build with all its processes; its `build` call, if there is one, returns the ExitStatus."""
        self.tell(Kind.SIGNAL, {"build": build, "signal": int(signal.SIGKILL)})

    def serving(self, url: str) -> None:
        """Tells the keeper that requests are accepted: until then a death counts as a failed start."""
        self.tell(Kind.SERVING, {"url": url, "ready": True})

    def refuse_handover(self, reason: str) -> None:
        """This control plane serves on."""
        self.tell(Kind.RELEASED, {"refused": reason})

    def released(self, *, in_flight: int) -> None:
        """Nothing is decided here any more. What is told from now on is held back until `resume`, or dropped."""
        self.tell(Kind.RELEASED, {"in_flight": in_flight})
        self._held = []

    def give(self, descriptor: int) -> None:
        """A connection for the successor. The descriptor is the keeper's from here on. Raises KeeperLost."""
        try:
            self._channel.send(Kind.CONNECTION, {}, [descriptor])
        except (ChannelClosed, QueueFull) as error:
            raise KeeperLost(f"the keeper can't be reached: {error}") from None
        self._arm()

    @property
    def unsent(self) -> bool:
        """Something still waits for the keeper to read."""
        return self._channel.waiting

    @property
    def on_drain(self) -> Callable[[str, float], None] | None:
        """Called once with (reason, seconds that running work may take); at once if it was asked for before this is set."""
        return self._on_drain

    @on_drain.setter
    def on_drain(self, call: Callable[[str, float], None]) -> None:
        self._on_drain = call
        if self._drain is not None:
            call(*self._drain)

    def close(self) -> None:
        """Lets the keeper go. It will end this control plane, unless that ends itself."""
        self._lose(KeeperLost("closed here"))

    # ---- for this module

    async def welcomed(self) -> None:
        await self._welcome

    def tell(self, kind: Kind, head: dict[str, Any]) -> None:
        """Sends what needs no answer. With the keeper gone there is nobody to tell."""
        if self._held is not None:
            self._held.append((kind, head))
            return
        with contextlib.suppress(ChannelClosed, QueueFull):
            self._channel.send(kind, head)
            self._arm()

    def forgotten(self, process: RunnerProcess) -> None:
        if self._processes.get(process.instance) is process:
            del self._processes[process.instance]

    def _order(self, kind: Kind, head: dict[str, Any]) -> None:
        """Raises SpawnRefused, KeeperLost."""
        if self._held is not None:
            raise SpawnRefused("another control plane decides about processes now")
        try:
            self._channel.send(kind, head)
        except ChannelClosed as error:
            raise KeeperLost(f"the keeper has gone: {error}") from None
        except QueueFull as error:
            raise SpawnRefused(f"the keeper doesn't read what it is told: {error}") from None
        except (TypeError, ValueError, RecursionError) as error:
            raise SpawnRefused(f"this can't be written as JSON: {error}") from None
        self._arm()

    def _readable(self) -> None:
        try:
            for message in self._channel.receive():
                self._heard(message)
            self._channel.flush()
        except ChannelClosed as error:
            self._lose(KeeperLost(f"the keeper has gone: {error}"))
        except (ProtocolError, KeyError, TypeError, ValueError) as error:
            self._lose(KeeperLost(f"the keeper said something that can't be read: {error!r}"))
        else:
            self._arm()

    def _arm(self) -> None:
        wanted = self._channel.waiting and not self._channel.starved
        if self._channel.starved:
            self._loop.call_later(RETRY_S, self._writable)
        if wanted and not self._writing:
            self._loop.add_writer(self._channel.fileno(), self._writable)
        elif self._writing and not wanted:
            self._loop.remove_writer(self._channel.fileno())
        self._writing = wanted

    def _writable(self) -> None:
        if self._channel.fileno() < 0:
            return
        try:
            self._channel.flush()
        except ChannelClosed as error:
            self._lose(KeeperLost(f"the keeper has gone: {error}"))
        else:
            self._arm()

    def _heard(self, message: Message) -> None:
        head = message.head
        match message.kind:
            case Kind.WELCOME:
                self._welcomed(head, message.descriptors)
            case Kind.SPAWNED:
                self._spawned(head, message.descriptors)
            case Kind.REFUSED:
                self._refused(head)
            case Kind.EXITED:
                self._exited(head)
            case Kind.DRAIN:
                self._drain = (str(head["reason"]), float(head["deadline_s"]))
                if self._on_drain is not None:
                    self._on_drain(*self._drain)
            case Kind.ZYGOTES:
                self.on_zygote(head)
            case Kind.HANDOVER:
                self._asked_to_let_go(float(head["patience_s"]))
            case Kind.RESUME:
                self._resume(str(head.get("reason", "")))
            case Kind.SUCCEEDED:
                if self.replacing is not None:
                    self.replacing.leave()
            case Kind.CONNECTION:
                for descriptor in message.descriptors:
                    self.on_connection(descriptor)
            case Kind.LEFT:
                self.predecessor = False
                self.on_left()
            case Kind.BUILT:
                pass  # its end is what counts
            case _:
                raise ProtocolError(f"a message of kind {message.kind}")

    def _welcomed(self, head: Mapping[str, Any], descriptors: list[int]) -> None:
        self.epoch = int(head["epoch"])
        self.keeper_pid = int(head["keeper_pid"])
        self.main_pid = int(head["main_pid"])
        self.control_pid = int(head["control_pid"])
        self.isolation = str(head.get("isolation", "none"))
        self.listeners = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        for listener in self.listeners:
            listener.setblocking(False)
        self.adopted_builds = [str(build["build"]) for build in head["builds"]]
        self.predecessor = bool(head.get("predecessor"))
        self._due = int(head["instances"]) + int(head["ended"])
        if len(self.listeners) != int(head["listeners"]):
            raise ProtocolError("some of the listening sockets are missing")
        self._count(0)

    def _count(self, arrived: int) -> None:
        self._due -= arrived
        if self._due <= 0 and not self._welcome.done():
            self._welcome.set_result(None)

    def _spawned(self, head: Mapping[str, Any], descriptors: list[int]) -> None:
        instance = str(head["instance"])
        waiter = self._spawning.pop(instance, None)
        if len(descriptors) != (3 if head.get("outbound") else 2):
            for descriptor in descriptors:
                os.close(descriptor)
            self.tell(Kind.FORGET, {"instance": instance})
            if waiter is not None and not waiter.done():
                waiter.set_exception(SpawnRefused("this process may open no more files (ulimit -n)"))
        else:
            os.set_blocking(descriptors[0], False)
            process = RunnerProcess(self, instance, int(head["pid"]), dict(head["memo"]), *descriptors)
            process.start = str(head.get("start", "exec"))
            if waiter is None:
                self._processes[instance] = process
                self.adopted.append(process)
            elif waiter.cancelled():
                process.forget()
            else:
                self._processes[instance] = process
                waiter.set_result(process)
        if waiter is None:
            self._count(1)

    def _refused(self, head: Mapping[str, Any]) -> None:
        refusal = SpawnRefused(str(head["reason"]))
        if "instance" in head:
            waiter = self._spawning.pop(str(head["instance"]), None)
            if waiter is None:
                self._count(1)  # a predecessor's, which the keeper can't give to us
            elif not waiter.done():
                waiter.set_exception(refusal)
        else:
            build = self._builds.get(str(head["build"]))
            if build is not None and not build.ended.done():
                build.ended.set_exception(refusal)

    def _exited(self, head: Mapping[str, Any]) -> None:
        self._count(1)
        status = ExitStatus(
            code=head["status"],
            signal=head["signal"],
            max_rss_bytes=int(head["max_rss_bytes"]),
            cpu_s=float(head["cpu_s"]),
            over_memory=bool(head.get("over_memory")),
            with_host=bool(head.get("with_host")),
        )
        if "instance" in head:
            process = self._processes.get(str(head["instance"]))
            if process is not None:
                process.end(status)
            return
        name = str(head["build"])
        build = self._builds.get(name)
        if name in self.adopted_builds:
            self.adopted_builds.remove(name)
        if build is None:
            self.tell(Kind.FORGET, {"build": name})
        elif not build.ended.done():
            build.ended.set_result(status)

    def _asked_to_let_go(self, patience_s: float) -> None:
        if self.replacing is None:
            self.refuse_handover("the control plane that serves is about to end")
        else:
            self.replacing.let_go(patience_s)

    def _resume(self, reason: str) -> None:
        held, self._held = self._held, None
        for kind, head in held or []:
            self.tell(kind, head)
        if self.replacing is not None:
            self.replacing.resume(reason)

    def _lose(self, lost: KeeperLost) -> None:
        if self._channel.fileno() < 0:
            return
        self._loop.remove_reader(self._channel.fileno())
        if self._writing:
            self._loop.remove_writer(self._channel.fileno())
        self._channel.close()
        if not self._welcome.done():
            self._welcome.set_exception(lost)
        for waiter in self._spawning.values():
            if not waiter.done():
                waiter.set_exception(lost)
        self._spawning.clear()
        for build in self._builds.values():
            if not build.ended.done():
                build.ended.set_exception(lost)
        for process in self._processes.values():
            process.abandon(lost)
        self.on_lost(lost)


def _ignore_loss(lost: KeeperLost) -> None:
    """Until somebody sets `on_lost`."""
