"""Zygotes, seen from the control plane: which version's instances come from which, and what the keeper is asked to have.

An instance whose zygote is ready is forked from it. Otherwise it is executed, and once it is ready a zygote of its environment is
started beside it, for the next one: no start ever waits for a zygote.
"""

import asyncio
import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from fornada.core.names import Instant
from fornada.core.policy import zygotes as policy
from fornada.core.policy.zygotes import State, Terms, Use
from fornada.core.ports import Access, EventLog, Limits, Provisioned, Sandbox, Version, ZygoteOrder
from fornada.core.resources import parse_size
from fornada.core.settings import NodeSettings
from fornada.node.launch import INHERITED_VARIABLES, SYSTEM_PATH, THREAD_VARIABLES
from fornada.node.memory_use import share_of

ENTRY = "import sys; sys.path.insert(0, sys.argv[1]); from fornada_sdk.runner.zygote import main; main()"
PRELOADS: Mapping[str, tuple[str, ...]] = {
    "onnx": ("numpy", "onnxruntime"),
    "litert": ("numpy", "ai_edge_litert.interpreter"),
    "torch": ("numpy", "torch"),
    "tensorflow": ("numpy", "tensorflow"),
    "gguf": ("xllamacpp",),
    "python": ("numpy",),
}
"""What the models of an engine import anyway. An engine that isn't here has no zygotes; what an environment lacks is no fault."""
WITHOUT_WALLS_OF_ITS_OWN = "landlock"
"""The level at which a zygote would have to reach what all of its instances may reach."""
MEMORY_LEAST, MEMORY_MOST = 1024**3, 8 * 1024**3
"""Of a zygote and what it parks. Between them it may have what the model declares for which it is made: whose imports need more couldn't be
executed either, and what a zygote holds stands in no model's books, so that a tenant could fill the machine by it."""
TURN_S = 5.0
WEIGH_S = 30.0
"""Between two readings of one: it changes only by what its children have come to share, and reading a large one takes milliseconds."""
HOST_SHARE = 0.25
"""Of the host's memory for models, all of them together may hold that much."""
LONG_AGO = Instant(0.0)
PROCESSES = 512
OPEN_FILES = 4096


class ZygotePort(Protocol):
    """node.keeper_client's KeeperClient, as far as this module needs it."""

    isolation: str
    zygotes: list[Mapping[str, Any]]
    """What became of some before anybody asked: ZYGOTES' fields."""
    on_zygote: Callable[[Mapping[str, Any]], None]
    """Told of the rest."""

    def want_zygote(self, order: ZygoteOrder) -> None: ...

    def retire_zygote(self, zygote: str) -> None: ...


@dataclass(slots=True)
class Source:
    """An environment that zygotes may be made for."""

    order: ZygoteOrder | None
    """None: a predecessor's, of which nothing has been started since."""
    defaults: tuple[str, ...] = ()
    last_used: Instant = LONG_AGO
    instances: set[str] = field(default_factory=set)
    proven: bool = False
    """Something of it has become ready: until then its packages may be no good, and the first start needs the machine for itself."""
    state: State | None = None
    spares: int = 0
    """As ordered."""
    spare_bytes: int = policy.SPARE_BYTES
    """What one of them keeps, as far as it is known."""
    held_bytes: int = 0
    """What the process holds of the host, or the one before it did."""
    weighed_at: Instant = LONG_AGO
    pid: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    ready_at: Instant | None = None
    """Since when it has been; None: it isn't."""
    failures: int = 0
    failed_at: Instant = LONG_AGO
    reason: str = ""
    """Why the last one failed."""


class Zygotes:
    """All of a node's. Without a port every instance is executed."""

    def __init__(
        self,
        port: ZygotePort | None,
        *,
        settings: NodeSettings,
        inherited: Mapping[str, str],
        log: EventLog,
        now: Callable[[], Instant],
        host_bytes: int = policy.UNBOUNDED,
        measure: Callable[[int], int] = share_of,
    ) -> None:
        """`host_bytes` is what the host has for models; `measure` reads what a process holds of it, in a thread."""
        self._port = port if port is not None and port.isolation != WITHOUT_WALLS_OF_ITS_OWN else None
        self._measure = measure
        self._terms = Terms(
            settings.zygotes and self._port is not None,
            settings.spares,
            parse_size(settings.spares_memory),
            zygotes_bytes=int(host_bytes * HOST_SHARE),
        )
        self._inherited = {name: inherited[name] for name in INHERITED_VARIABLES if name in inherited}
        self._log = log
        self._now = now
        self._sources: dict[str, Source] = {}
        self._keys: dict[str, str] = {}
        """Instance -> key, of those that run."""
        self._planned_at = Instant(0.0)
        self._gave_bytes = 0
        if self._port is not None:
            told, self._port.on_zygote = self._port.zygotes, self.heard
            for head in told:
                self.heard(head)

    # ---- what instances tell

    def start(self, instance: str, version: Version, provisioned: Provisioned) -> str:
        """The instance is about to be started: the zygote that it is to be forked from, or nothing."""
        defaults = PRELOADS.get(version.spec.engine)
        if not self._terms.zygotes or defaults is None:
            return ""
        order = _order(version, provisioned, defaults, self._inherited)
        source = self._sources.setdefault(order.zygote, Source(order))
        source.order, source.defaults, source.last_used = order, defaults, self._now()
        source.instances.add(instance)
        self._keys[instance] = order.zygote
        return order.zygote if source.state is State.READY else ""

    def of(self, instance: str) -> str:
        """The name that the zygote of its environment has, or would have; empty where it can have none."""
        return self._keys.get(instance, "")

    def adopted(self, instance: str, zygote: str) -> None:
        """A predecessor started it; `zygote` is what `of` said there."""
        if zygote and self._terms.zygotes:
            self._sources.setdefault(zygote, Source(None, last_used=self._now())).instances.add(instance)
            self._keys[instance] = zygote

    def ready(self, instance: str) -> None:
        """It is: its environment is good, and what it took of the machine while it came up is free again."""
        if instance in self._keys:
            self._sources[self._keys[instance]].proven = True
            self.replan()

    def ended(self, instance: str) -> None:
        """It runs no longer, or couldn't be started."""
        key = self._keys.pop(instance, None)
        if key is not None:
            source = self._sources[key]
            source.instances.discard(instance)
            source.last_used = self._now()

    # ---- what the keeper tells

    def heard(self, head: Mapping[str, Any]) -> None:
        """Of one zygote."""
        key, state, reason = str(head["zygote"]), State(head["state"]), str(head.get("reason", ""))
        source = self._sources.get(key)
        if source is None:
            source = self._sources[key] = Source(None, last_used=self._now())
        was, pid = source.state, int(head.get("pid", 0))
        if source.pid and pid and pid != source.pid and state is State.ENDED:
            return  # a predecessor of the one that is there now
        if pid != source.pid:
            source.pid, source.weighed_at = pid, LONG_AGO
        match state:
            case State.IMPORTING:
                source.facts = {}
            case State.READY:
                lacking = {name: why for name, why in dict(head.get("failed", {})).items() if name not in source.defaults}
                source.facts = {"import_s": head.get("import_s"), "threads": head.get("threads"), "failed": lacking}
                if (held := int(head.get("spare_bytes", 0))) > 0:
                    source.facts["spare_bytes"] = source.spare_bytes = held
                if source.ready_at is None:
                    source.ready_at = self._now()
                source.reason = ""
            case State.UNFIT | State.ENDED:
                wanted = source.spares >= 0 and was in (State.IMPORTING, State.READY)
                if wanted:
                    ready_s = self._now() - source.ready_at if source.ready_at is not None else 0.0
                    source.failures = policy.failures_after(source.failures, ready_s)
                    source.failed_at = self._now()
                    source.reason = reason
                source.facts, source.ready_at = {}, None
        source.state = None if state is State.ENDED else state
        if state is State.ENDED and source.spares < 0:
            reason = "the node let it go"  # its exit code would look like a fault of its own
        if state is not was:
            fields = {"zygote": key, "state": state.value, "pid": pid, **source.facts, **({"reason": reason} if reason else {})}
            (self._log.warning if state is State.UNFIT else self._log.info)("zygote.changed", **fields)

    # ---- what is to be

    def turn(self) -> None:
        """Called now and then, since time passes."""
        if self._sources and self._now() >= self._planned_at + TURN_S:
            self.replan()

    async def weigh(self) -> None:
        """Reads what those hold that are there, each now and then."""
        due = [each for each in self._sources.values() if each.pid and self._now() >= each.weighed_at + WEIGH_S]
        if not due:
            return
        pids = [source.pid for source in due]
        read = await asyncio.to_thread(lambda: [self._measure(pid) for pid in pids])
        for source, pid, held in zip(due, pids, read, strict=True):
            if source.pid == pid and source.state is State.READY and held:
                source.held_bytes, source.weighed_at = held, self._now()

    def held_bytes(self) -> int:
        """Of the host's memory, by all of them and their spares."""
        return sum(source.held_bytes for source in self._sources.values() if source.state is State.READY) + self.spare_bytes()

    def give_way(self, in_the_way: bool, *, spare_bytes: Callable[[], int]) -> None:
        """Whether somebody waits for host memory that they hold; `spare_bytes` tells how much of it nobody was promised.

        They come back when there is as much as they gave: else the one for whom they went would soon be one too many."""
        if in_the_way and not self._terms.in_the_way and (held := self.held_bytes()):
            self._gave_bytes = held
            self._log.info("zygotes.give_way", held_bytes=held)
        elif in_the_way or not self._terms.in_the_way or spare_bytes() < self._gave_bytes:
            return
        self._terms = self._terms._replace(in_the_way=in_the_way)
        self.replan()

    def replan(self) -> None:
        """Asks the keeper for what the policy wants."""
        if self._port is None:
            return
        self._planned_at = self._now()
        plan = policy.plan(self._uses(), self._terms, self._now())
        for key, spares in plan.wanted.items():
            source = self._sources[key]
            if source.order is not None and (source.state not in (State.IMPORTING, State.READY) or source.spares != spares):
                source.spares = spares
                self._port.want_zygote(msgspec.structs.replace(source.order, spares=spares))
        for key in plan.retired:
            if self._sources[key].spares >= 0:
                self._sources[key].spares = -1  # said once
                self._port.retire_zygote(key)
        for key in [key for key, source in self._sources.items() if source.state is None and not source.instances]:
            if self._now() - self._sources[key].last_used >= policy.KEEP_S:
                del self._sources[key]

    def _uses(self) -> list[Use]:
        return [
            Use(
                key,
                len(source.instances),
                source.last_used,
                source.state,
                source.failures,
                source.failed_at,
                source.spare_bytes,
                source.held_bytes,
            )
            for key, source in self._sources.items()
            if source.proven or source.state is not None
        ]

    # ---- what people see

    def why(self, instance: str) -> dict[str, Any] | None:
        """Of a running instance's environment: its zygote, or why there is none. None where it has none to have."""
        source = self._sources.get(self._keys.get(instance, ""))
        if source is None:
            return None
        state = source.state.value if source.state is not None else "none"
        return {"zygote": state, "pid": source.pid if source.state else 0, "reason": source.reason, **source.facts}

    def spare_bytes(self) -> int:
        """Of all spares that are parked or about to be, for the metric."""
        return sum(
            source.spares * source.spare_bytes for source in self._sources.values() if source.state is State.READY and source.spares > 0
        )

    def count(self) -> list[tuple[tuple[str, ...], float]]:
        """By state, for the metric."""
        counts: dict[tuple[str, ...], float] = {}
        for source in self._sources.values():
            if source.state is not None:
                counts[source.state.value,] = counts.get((source.state.value,), 0) + 1
        return list(counts.items())


def _order(version: Version, provisioned: Provisioned, defaults: tuple[str, ...], inherited: Mapping[str, str]) -> ZygoteOrder:
    """Its name says all that its instances have in common: whose they are, their packages, our code, what is imported, and the
    variables that packages may read at their import."""
    spec = version.spec
    modules = list(dict.fromkeys([*spec.python.preload, *defaults, f"fornada_sdk.runner.engines.{spec.engine}"]))
    env = {
        "PATH": f"{os.path.dirname(provisioned.python)}:{SYSTEM_PATH}",
        "LANG": "C.UTF-8",
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "VIRTUAL_ENV": provisioned.environment,
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TF_CPP_MIN_LOG_LEVEL": "1",
        # Neither a device nor a pool of threads may be begun before the fork.
        "CUDA_VISIBLE_DEVICES": "",
        **inherited,
        **spec.env,
        **dict.fromkeys(THREAD_VARIABLES, "1"),
    }
    named = msgspec.json.encode([version.account, provisioned.environment, provisioned.sdk, modules, sorted(env.items())])
    return ZygoteOrder(
        zygote=f"{os.path.basename(provisioned.environment)[:12]}-{hashlib.sha256(named).hexdigest()[:12]}",
        argv=[provisioned.python, "-I", "-B", "-c", ENTRY, provisioned.sdk, *modules],
        env=env,
        cwd="/",
        limits=Limits(memory_bytes=max(MEMORY_LEAST, min(spec.resources.memory, MEMORY_MOST)), open_files=OPEN_FILES, processes=PROCESSES),
        sandbox=Sandbox(
            files=[(provisioned.environment, Access.READ), (provisioned.sdk, Access.READ)], python=provisioned.python, own_uid=False
        ),
        spares=0,
    )
