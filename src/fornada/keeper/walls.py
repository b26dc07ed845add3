"""The parent's half of every child's walls: what is opened, made and counted for it before the fork, and given back after its end.

An order says what a child may see and use; this module turns it into a plan for the child, by the level that the node runs at.
"""

import contextlib
import dataclasses
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import assert_never

from fornada.keeper import memory_watch, reach
from fornada.keeper.cgroups import place
from fornada.keeper.cgroups.files import CgroupError
from fornada.keeper.cgroups.group import Bounds, Group
from fornada.keeper.cgroups.tree import Tree
from fornada.keeper.config import WallsConfig
from fornada.keeper.levels import Level
from fornada.keeper.limits_view import RHYTHM_S, LimitsView
from fornada.keeper.loop import Loop
from fornada.keeper.orders import Command, Network, Sandbox
from fornada.keeper.say import say
from fornada.keeper.separation import Behind
from fornada.keeper.uid_blocks import Block, Blocks, Ids
from fornada_sdk.sandbox import mounts, seccomp, syscalls
from fornada_sdk.sandbox.plan import Access, Attached, Grant, Identity, Landlock, Limits, Namespace, Plan, Users
from fornada_sdk.sandbox.seccomp import Uid, Variant
from fornada_sdk.sandbox.view import View, host_grants, open_more, open_view

RETRY_S = 0.02
"""Between two tries to remove a group whose processes are dying."""
VIEWS = "limits"
VIEWS_BYTES = 16 * 1024 * 1024
HOST_NAME = "model"


class NoWalls(Exception):
    """The level can't be had after all. The message is one line."""


class Enclosure:
    """One child's walls. `release` when it has been reaped, or was never forked."""

    def __init__(self, name: str, walls: "Walls") -> None:
        self.name = name
        self.behind: Behind | None = None
        self.group: Group | None = None
        self.view: LimitsView | None = None
        self.uid = 0
        self.give_uid_back: Callable[[], None] = lambda: None
        self.landlock: Landlock | None = None
        """Of the first half, where it is a spare's."""
        self.memory_bytes = 0
        self.folders: list[int] = []
        """Descriptors of its folders in memory, where nothing else counts what lies there as its own."""
        self.pid = 0
        """Outside; 0 until it is forked."""
        self.over_memory = False
        self.end: Callable[[], None] = lambda: None
        """Ends the child: it holds more than its bound. For whoever knows how."""
        self._walls = walls

    def forked(self, outer: int) -> None:
        """The child has its own copies of all descriptors."""
        self.pid = outer
        self._close()

    def release(self) -> None:
        self._close()
        self._walls.released(self)

    def _close(self) -> None:
        if self.behind is not None:
            for descriptor in self.behind.descriptors:
                os.close(descriptor)
            self.behind = None


class Walls:
    """Of one node."""

    def __init__(self, config: WallsConfig, loop: Loop) -> None:
        """Raises NoWalls."""
        self.level = Level(config.level)
        self._config = config
        self._loop = loop
        self._live: dict[str, Enclosure] = {}
        self._dying: list[Group] = []
        self._removing = False
        self._free = set(range(config.first_uid, config.first_uid + config.uids))
        self._blocks = Blocks(config.first_block, config.blocks)
        self._keeper = os.pidfd_open(os.getpid())
        self._views = Path(config.run_dir) / VIEWS
        self._tree: Tree | None = None
        try:
            self._begin()
        except (OSError, CgroupError) as error:
            raise NoWalls(f"isolation {self.level} can't be had: {_text(error)}; 'fornada doctor' shows what is missing") from None

    def _begin(self) -> None:
        match self.level:
            case Level.FULL:
                found = place.find(self._config.node)
                if isinstance(found, place.NoPlace):
                    raise CgroupError(f"{found.why}; {found.advice}")
                self._tree = Tree(found, self._config.node)
                self._sweep()
                self._own_mounts()
                self._loop.later(RHYTHM_S, self._rewrite_views)
            case Level.NAMESPACES:
                self._own_mounts()
                self._loop.later(memory_watch.CALM_S, self._watch_memory)
            case Level.LANDLOCK:
                self._loop.later(memory_watch.CALM_S, self._watch_memory)
            case Level.NONE:
                pass
            case _:
                assert_never(self.level)

        if self.level is not Level.NONE:
            for uid in Uid:
                seccomp.program(
                    _WATCHED[Network.NONE] if self.level is Level.NAMESPACES else Variant.USUAL, uid=uid
                )  # forked children find it made

    def _own_mounts(self) -> None:
        """What we mount is ours alone, and what the operator mounts later comes to us too."""
        shutil.rmtree(self._views, ignore_errors=True)
        self._views.mkdir(mode=0o700, exist_ok=True)
        syscalls.unshare(syscalls.CLONE_NEWNS)
        syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_SLAVE)
        syscalls.mount("fornada", str(self._views), "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, f"size={VIEWS_BYTES},mode=755")

    def close(self) -> None:
        """At the end of the keeper, when all children have been reaped."""
        if self._tree is None:
            return
        with contextlib.suppress(CgroupError):
            for group in self._dying:
                self._tree.forget(group)
            self._tree.close()

    # ---- one child

    def around(self, name: str, command: Command, *, block: Block | None = None) -> Enclosure:
        """What the child needs before it is forked; `block` is its zygote's. Raises OSError; nothing is left then."""
        enclosure = Enclosure(name, self)
        with _released_on_failure(enclosure):
            self._build(enclosure, command, block)
        self._live[name] = enclosure
        return enclosure

    def around_zygote(self, name: str, command: Command) -> Enclosure:
        """The same for a zygote, which sees the machine's limits and not its own: where a file lies over /proc, no child may mount
        another /proc. Raises OSError; nothing is left then."""
        enclosure = Enclosure(name, self)
        with _released_on_failure(enclosure):
            if self.level is not Level.NONE:
                self._apart(enclosure, command, self._shown(command, {}), None)
        self._live[name] = enclosure
        return enclosure

    def around_spare(self, name: str, command: Command) -> Enclosure:
        """The first half, for a spare of the zygote that has this command. Raises OSError; nothing is left then."""
        enclosure = Enclosure(name, self)
        with _released_on_failure(enclosure):
            shown = self._shown(command, {})
            enclosure.landlock = shown.landlock
            enclosure.behind = Behind(Plan(), shown.descriptors, self._keeper)
            # To join one takes the kernel milliseconds, since all of the machine's processors have to hear of it.
            descriptors = (*shown.descriptors, *self._grouped(enclosure, command))
            cgroups = tuple(range(len(shown.descriptors), len(descriptors)))
            plan = Plan(cgroups=cgroups, namespaces=self._namespaces(Network.NONE), root=shown.root)
            enclosure.behind = Behind(plan, descriptors, self._keeper)
        return enclosure

    def complete(self, enclosure: Enclosure, name: str, command: Command, *, beside: Sandbox, block: Block) -> None:
        """The second half: the spare becomes this child, which sees more than what the first half shows, `beside`. Raises OSError;
        the spare is good for nothing then."""
        enclosure.name = name
        with _released_on_failure(enclosure):
            files = [grant for grant in command.sandbox.files if grant not in beside.files]
            in_memory = self._in_memory(command)
            shown = open_more(files, over=self._view(enclosure, command), in_memory=in_memory)
            grants = (*(enclosure.landlock.grants if enclosure.landlock is not None else ()), *shown.landlock.grants)
            self._apart(enclosure, command, View(shown.root, shown.descriptors, Landlock(grants)), block)
        self._live[name] = enclosure

    def block(self) -> Block | None:
        """Uids for a zygote; None where there are no walls. Raises OSError."""
        match self.level:
            case Level.FULL | Level.NAMESPACES if self._config.own_users and self._config.blocks:
                return self._blocks.take()
            case Level.FULL | Level.NAMESPACES if self._config.own_users and os.geteuid() != 0:
                return Block(Ids(os.geteuid(), os.getegid(), 1))
            case Level.NONE:
                return None
            case _:
                # At this level what a process can reach is narrowed and never widened: a zygote that has to give its children the
                # files of models would have to reach them all itself, while it imports packages.
                raise OSError(0, f"at isolation {self.level} there are no zygotes")

    def free_block(self, block: Block) -> None:
        if not block.shared:
            self._blocks.give_back(block)

    def _build(self, enclosure: Enclosure, command: Command, block: Block | None) -> None:
        match self.level:
            case Level.NONE:
                return
            case Level.LANDLOCK:
                identity = self._identity(enclosure, command.sandbox, None)
                enclosure.memory_bytes = command.limits.memory_bytes
                if identity is not None:
                    reach.let_through(command.sandbox, below=Path(self._config.run_dir).parent)
                enclosure.behind = Behind(self._plan_on_the_host(command.sandbox, command.limits, identity), (), self._keeper)
            case Level.FULL | Level.NAMESPACES if command.sandbox.network is Network.HOST and self._config.landlock:
                self._linking(enclosure, command)
            case Level.FULL | Level.NAMESPACES:
                shown = self._shown(command, self._view(enclosure, command))
                self._apart(enclosure, command, shown, block)
            case _:
                assert_never(self.level)

    def _linking(self, enclosure: Enclosure, command: Command) -> None:
        """For tools that link what they have fetched into what they make: between two mounts of a root of their own they would have to
        copy it. So they see the host's files, of which Landlock leaves them theirs."""
        enclosure.memory_bytes = command.limits.memory_bytes
        plan = self._plan_on_the_host(command.sandbox, command.limits, self._identity(enclosure, command.sandbox, None))
        joins = self._grouped(enclosure, command)
        namespaces = frozenset({Namespace.IPC, Namespace.HOSTNAME})
        plan = dataclasses.replace(plan, namespaces=namespaces, cgroups=tuple(range(len(joins))), hostname=HOST_NAME)
        enclosure.behind = Behind(plan, tuple(joins), self._keeper)

    def _grouped(self, enclosure: Enclosure, command: Command) -> list[int]:
        """A cgroup of its own, where there are any: descriptors to join it by. A spare is in its own already."""
        if self._tree is None:
            return []
        bounds = Bounds(memory_bytes=command.limits.memory_bytes, cpus=command.sandbox.cpus, pids=command.limits.processes)
        if enclosure.group is not None:
            enclosure.group.bound(bounds)
            return []
        enclosure.group = group = self._tree.create(enclosure.name, bounds)
        if group.oom >= 0:
            self._loop.watch(group.oom, lambda: self._out_of_memory(enclosure), group.oom_events)
        return group.joins()

    def _shown(self, command: Command, over: dict[str, str]) -> View:
        sandbox = command.sandbox
        return open_view(
            sandbox.files,
            python=sandbox.python,
            over=over,
            in_memory=self._in_memory(command),
            temporary_bytes=sandbox.temporary_bytes,
            shared_bytes=sandbox.temporary_bytes,
        )

    @staticmethod
    def _in_memory(command: Command) -> dict[str, int]:
        """More than its bound of memory can't be had there: where a watch keeps that bound, it would come late."""
        most = command.limits.memory_bytes or sys.maxsize
        return {path: min(size, most) for path, size in command.sandbox.in_memory.items()}

    def _apart(self, enclosure: Enclosure, command: Command, shown: View, block: Block | None) -> None:
        """In namespaces of its own. `shown` becomes the enclosure's."""
        sandbox, limits = command.sandbox, command.limits
        enclosure.memory_bytes = limits.memory_bytes
        enclosure.behind = Behind(Plan(), shown.descriptors, self._keeper)  # whatever fails from here on closes them
        in_memory = _in_memory(shown, sandbox)
        identity = self._identity(enclosure, sandbox, block, in_memory)
        if self._tree is None:
            enclosure.folders += [os.dup(descriptor) for descriptor in in_memory.values()]
        joins = self._grouped(enclosure, command)
        descriptors = (*shown.descriptors, *joins)
        plan = Plan(
            cgroups=tuple(range(len(shown.descriptors), len(descriptors))),
            namespaces=self._namespaces(sandbox.network),
            loopback=sandbox.network is Network.LOOPBACK,
            root=shown.root,
            hostname=HOST_NAME,
            identity=identity,
            users=Users() if self._config.own_users else None,
            limits=self._rlimits(limits, own_count=identity is not None or self._config.own_users),
            landlock=shown.landlock if self._config.landlock else None,
            seccomp=(_VARIANTS if self._tree is not None else _WATCHED)[sandbox.network],
        )
        enclosure.behind = Behind(plan, descriptors, self._keeper)

    def _plan_on_the_host(self, sandbox: Sandbox, limits: Limits, identity: Identity | None) -> Plan:
        """Without a network namespace there is no loopback of its own: what asked for one has no network."""
        online = sandbox.network is Network.HOST
        files = (*sandbox.files, *(Grant(path, Access.READ) for path in _resolvers())) if online else sandbox.files
        grants = host_grants(files, python=sandbox.python)
        confined = Variant.SCOPED if self._config.scoped_signals else Variant.STRICT
        return Plan(
            identity=identity,
            limits=self._rlimits(limits, own_count=identity is not None),
            landlock=dataclasses.replace(grants, refuse_tcp=not online),
            seccomp=Variant.HOST if online else confined,
        )

    def _identity(
        self, enclosure: Enclosure, sandbox: Sandbox, block: Block | None, in_memory: Mapping[str, int] = MappingProxyType({})
    ) -> Identity | None:
        """As its user namespace calls it: ours, or its zygote's. `in_memory`: descriptors of what takes a folder's place."""
        if not sandbox.own_uid or (block.shared if block is not None else not self._config.uids):
            return None
        if block is not None:
            inside = block.take()
            enclosure.uid, enclosure.give_uid_back = block.ids.first_uid + inside, lambda: block.give_back(inside)
        elif not self._free:
            raise OSError(0, f"all {self._config.uids} uids that instances may have are in use")
        else:
            inside = enclosure.uid = min(self._free)
            self._free.remove(inside)
            enclosure.give_uid_back = lambda: self._free.add(inside)
        for grant in sandbox.files:
            if grant.path in in_memory:
                mounts.own(in_memory[grant.path], enclosure.uid, enclosure.uid)
            elif grant.access is Access.WRITE:
                # Not followed: what lies there may be a model's.
                os.chown(grant.path, enclosure.uid, enclosure.uid, follow_symlinks=False)
        return Identity(inside, inside)

    def _rlimits(self, limits: Limits, *, own_count: bool) -> Limits:
        """A group bounds memory and processes better: private memory alone isn't all, and rlimits count a uid's processes together."""
        if self._tree is not None:
            return dataclasses.replace(limits, memory_bytes=0, processes=0)
        return limits if own_count else dataclasses.replace(limits, processes=0)

    def _namespaces(self, network: Network) -> frozenset[Namespace]:
        wanted = {Namespace.MOUNTS, Namespace.IPC, Namespace.HOSTNAME}
        if network is not Network.HOST:
            wanted.add(Namespace.NETWORK)
        if self._config.cgroup_namespace:
            wanted.add(Namespace.CGROUPS)
        return frozenset(wanted)

    def _view(self, enclosure: Enclosure, command: Command) -> dict[str, str]:
        """Path inside -> file that is shown there."""
        view = LimitsView(
            self._views, enclosure.name.replace("/", "_"), memory_bytes=command.limits.memory_bytes, cpus=command.sandbox.cpus
        )
        enclosure.view = view
        found = {"/proc/meminfo": view.meminfo, "/proc/cpuinfo": view.cpuinfo}
        shown = {path: str(file) for path, file in found.items() if file is not None}
        if command.sandbox.network is Network.HOST:
            shown |= {path: os.path.realpath(path) for path in _resolvers()}
        return shown

    def released(self, enclosure: Enclosure) -> None:
        """For the enclosure."""
        if self._live.get(enclosure.name) is enclosure:
            del self._live[enclosure.name]
        enclosure.give_uid_back()
        enclosure.uid, enclosure.give_uid_back = 0, lambda: None
        while enclosure.folders:
            os.close(enclosure.folders.pop())
        if enclosure.view is not None:
            with contextlib.suppress(OSError):
                enclosure.view.close()
            enclosure.view = None
        if (group := enclosure.group) is not None:
            enclosure.group = None
            if group.oom >= 0:
                with contextlib.suppress(CgroupError):
                    enclosure.over_memory = enclosure.over_memory or group.oom_kills() > 0
                self._loop.unwatch(group.oom)
            group.close()
            self._dying.append(group)
            self._remove_groups()

    # ---- groups

    def _out_of_memory(self, enclosure: Enclosure) -> None:
        group = enclosure.group
        with contextlib.suppress(CgroupError):
            if group is not None and group.oom_kills():
                enclosure.over_memory = True
                enclosure.end()  # the kernel may have chosen a helper of the model's, without which it would only hang

    def _remove_groups(self) -> None:
        if self._removing or self._tree is None:
            return
        left = []
        for group in self._dying:
            try:
                if not self._tree.forget(group):
                    left.append(group)
            except CgroupError as error:
                say(f"the cgroup of {group.name} stays: {error}")
        self._dying = left
        if left:
            self._removing = True
            self._loop.later(RETRY_S, self._remove_again)

    def _remove_again(self) -> None:
        self._removing = False
        self._remove_groups()

    def _sweep(self) -> None:
        """What a keeper that was killed left."""
        if self._tree is None:
            return
        try:
            if self._tree.sweep():
                self._loop.later(RETRY_S, self._sweep)
        except CgroupError as error:
            say(f"cgroups of an earlier node stay: {error}")

    # ---- what is looked at again and again

    def _rewrite_views(self) -> None:
        for enclosure in self._live.values():
            if enclosure.view is not None and enclosure.group is not None and enclosure.pid:
                with contextlib.suppress(OSError, CgroupError):
                    enclosure.view.rewrite(enclosure.group.memory_bytes())
        self._loop.later(RHYTHM_S, self._rewrite_views)

    def _watch_memory(self) -> None:
        watched = {
            enclosure.name: memory_watch.Watched(
                instance=enclosure.name, pid=enclosure.pid, limit_bytes=enclosure.memory_bytes, folders=tuple(enclosure.folders)
            )
            for enclosure in self._live.values()
            if enclosure.pid and enclosure.memory_bytes
        }
        samples = memory_watch.look(list(watched.values()))
        for sample in samples:
            enclosure = self._live[sample.instance]
            if enclosure.view is not None:
                with contextlib.suppress(OSError):
                    enclosure.view.rewrite(sample.used_bytes)
        for too_much in memory_watch.over(samples):
            enclosure = self._live[too_much.instance]
            say(f"{too_much.instance} is ended: {too_much.reason}")
            enclosure.over_memory = True
            enclosure.end()
        self._loop.later(memory_watch.next_look_s(samples), self._watch_memory)


@contextlib.contextmanager
def _released_on_failure(enclosure: Enclosure) -> Iterator[None]:
    """Makes every failure an OSError."""
    try:
        yield
    except (OSError, CgroupError) as error:
        enclosure.release()
        raise error if isinstance(error, OSError) else OSError(0, _text(error)) from None


_VARIANTS = {Network.NONE: Variant.USUAL, Network.LOOPBACK: Variant.NETWORK, Network.HOST: Variant.HOST}
_WATCHED = {**_VARIANTS, Network.NONE: Variant.WATCHED, Network.LOOPBACK: Variant.WATCHED_NETWORK}


def _in_memory(shown: View, sandbox: Sandbox) -> dict[str, int]:
    """Path -> descriptor of the folder in memory that is mounted there."""
    attached = (entry for entry in shown.root.entries if isinstance(entry, Attached) and entry.path in sandbox.in_memory)
    return {entry.path: shown.descriptors[entry.descriptor] for entry in attached}


def _resolvers() -> list[str]:
    """What names of hosts are looked up by."""
    return [path for path in ("/etc/hosts", "/etc/nsswitch.conf", "/etc/resolv.conf", "/etc/gai.conf") if os.path.exists(path)]


def _text(error: OSError | CgroupError) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)
