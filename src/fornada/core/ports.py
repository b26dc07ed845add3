"""What the parts of a node need of one another. `app.wiring` is the only place that knows who stands behind a port."""

import enum
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from fornada.core.names import AccountId, Instant, ModelName, Reference, VersionDigest
from fornada.core.requests import InferenceRequest, Sink, Ticket
from fornada.core.specs import ModelSpec


class Clock(Protocol):
    """Time as an argument."""

    def now(self) -> Instant:
        """Monotonic seconds."""

    def wall(self) -> float:
        """Seconds since 1970, UTC."""


class EventLog(Protocol):
    """Where events go: a name that stands once in the code, and fields. Never inputs, outputs or keys."""

    def info(self, event: str, /, **fields: Any) -> None: ...

    def warning(self, event: str, /, **fields: Any) -> None: ...


class Version(msgspec.Struct, frozen=True):
    """One immutable version of a model, as the store keeps it."""

    model: ModelName
    digest: VersionDigest
    account: AccountId
    spec: ModelSpec
    folder: str
    """Absolute path of the unpacked bundle; read-only."""
    lock: str
    """Requirements with hashes, one text; its sha256 with the interpreter names the environment."""
    created: float
    """Seconds since 1970."""
    builtin: bool = False


class Entry(msgspec.Struct, frozen=True):
    """A model of the catalogue: its versions and what the labels point at."""

    name: ModelName
    account: AccountId
    stable: Version
    previous: Version | None = None
    """What stable pointed at before: what serves until stable is warm, and what a bad deploy falls back to."""
    canary: Version | None = None
    canary_share: float = 0.0
    versions: tuple[VersionDigest, ...] = ()
    pinned: bool = False
    serving: Version | None = None
    """What has taken the name: an older one than stable while a deploy is under way. None: stable."""

    @property
    def answering(self) -> Version:
        """What a request gets that names no version."""
        return self.serving or self.stable


class Resolved(NamedTuple):
    """A reference, looked up."""

    entry: Entry
    spec: ModelSpec
    """Of the version that answers."""
    version: VersionDigest | None
    """Set only where the caller named one."""


class Pruned(msgspec.Struct, frozen=True):
    """What a prune removed."""

    removed: dict[str, int]
    """How many of each kind: environments, artifacts, converted, bundles, sdk, partial, cache."""
    freed_bytes: int


class CatalogPort(Protocol):
    """Which models there are. Synchronous and from memory: it is on the hot path."""

    def resolve(self, reference: Reference, account: AccountId | None) -> Resolved:
        """Raises UnknownModel, ModelNotAllowed."""

    def entry(self, name: ModelName) -> Entry | None:
        """The model of that very name (no alias), for whoever runs it."""

    def visibility(self, entry: Entry) -> str:
        """account | node: who may see the model, where its author leaves it to the mode of the node."""

    def version(self, name: ModelName, digest: VersionDigest) -> Version:
        """One registered version. Raises UnknownModel."""

    def reload(self, name: ModelName) -> None:
        """Reads the model from the store again: after somebody moved a label or pinned it there."""

    def entries(self, account: AccountId | None) -> Sequence[Entry]:
        """All that the account may see, by name."""

    async def deploy(self, bundle: bytes, *, name: str | None, account: AccountId, label: str) -> Version:
        """Unpacks, checks, locks and registers. Raises InvalidSpec, ModelNotAllowed, TooLarge, DiskFull."""

    async def remove(self, reference: Reference, *, account: AccountId | None) -> None:
        """Forgets a model or one of its versions; its instances end. Raises UnknownModel, Conflict."""

    async def prune(self) -> Pruned:
        """Removes what no registered version and no live process needs."""


class InferencePort(Protocol):
    """Runs requests. `node.manager` implements it."""

    def submit(self, request: InferenceRequest, sink: Sink) -> Ticket:
        """Never raises for a refusal: it tells the sink, perhaps before it returns. Loads the model where it must."""


class LogLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a model's own output."""

    time: str
    """RFC 3339, UTC, milliseconds."""
    stream: str
    """stdout | stderr | log"""
    line: str
    instance: str = ""
    request_id: str = ""


class ModelView(msgspec.Struct, frozen=True):
    """M of INTERFACE: a model as people see it."""

    name: str
    aliases: list[str]
    task: str
    engine: str
    version: str
    state: str
    """stopped | pending | ready | asleep | stopping | failed"""
    why: str
    declared_bytes: int
    peak_bytes: int
    last_used: str | None
    versions: list[dict[str, Any]]
    instances: list[dict[str, Any]]
    pinned: bool = False
    account: str = ""
    description: str = ""
    visibility: str = "account"
    progress: dict[str, Any] | None = None
    """While pending: {"phase", "text", "fraction"}"""


class OperationsPort(Protocol):
    """What an operator does to models and devices. Each answers when it is true. Names are references already resolved."""

    def view(self, name: ModelName) -> ModelView: ...

    def views(self, account: AccountId | None) -> Sequence[ModelView]: ...

    async def load(self, name: ModelName, *, deadline: Instant) -> ModelView:
        """Raises LoadFailed, Busy, NeverFits, DeadlinePassed."""

    async def unload(self, name: ModelName, *, grace_s: float | None) -> ModelView: ...

    async def sleep(self, name: ModelName) -> ModelView: ...

    async def pin(self, name: ModelName, *, pinned: bool) -> ModelView: ...

    async def reset(self, name: ModelName) -> ModelView: ...

    def why(self, name: ModelName, account: AccountId | None) -> Mapping[str, Any]:
        """Why it is (not) loaded, as the account may know it: {"model","state","since","summary","queue","residents","devices", ...}."""

    def logs(self, name: ModelName, *, follow: bool, last: int) -> AsyncIterator[LogLine]: ...

    def devices(self) -> Sequence[Mapping[str, Any]]: ...
    def residency(self) -> Mapping[str, Any]: ...

    def patch_device(self, device: str, change: Mapping[str, Any]) -> Mapping[str, Any]:
        """Raises BadRequest for an unknown device or key."""

    def node(self) -> Mapping[str, Any]:
        """run/node.json as an object, with what `GET /api/v1/nodes` adds."""

    def events(self) -> AsyncIterator[Mapping[str, Any]]: ...

    def health(self) -> "Health": ...


class Health(msgspec.Struct, frozen=True):
    """What /health/ready looks at."""

    accepting: bool
    """False while starting and draining."""
    draining: bool
    loop_age_s: float
    """Age of the scheduler loop's last turn."""


class Limits(msgspec.Struct, frozen=True, omit_defaults=True):
    """Bounds of a child process and all that it starts. 0 means none."""

    memory_bytes: int = 0
    open_files: int = 1024
    processes: int = 0
    file_bytes: int = 0
    core_bytes: int = 0
    nice: int = 0


class Access(enum.StrEnum):
    """What a child may do with a file, or with all that a folder holds."""

    READ = "read"
    WRITE = "write"
    USE = "use"
    """Read, write and control: device nodes."""


class Network(enum.StrEnum):
    """What a child reaches."""

    NONE = "none"
    LOOPBACK = "loopback"
    """Its own 127.0.0.1."""
    HOST = "host"
    """What the node reaches."""


class Sandbox(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a child may see and use. How it is kept from the rest is the keeper's, by the node's level of isolation."""

    files: list[tuple[str, Access]] = []
    """Absolute paths of folders, files and device nodes. WRITE ones become the child's own if it has a uid of its own."""
    in_memory: dict[str, int] = {}
    """Those of them, WRITE folders, whose place an empty folder of so many bytes of memory takes, at levels with mounts of their own.
    It counts as the child's memory."""
    python: str = ""
    """An interpreter that is there with all that belongs to it."""
    network: Network = Network.NONE
    cpus: float = 0.0
    """CPU seconds per second; 0: no bound."""
    temporary_bytes: int = 64 * 1024**2
    """Of its own /tmp, and as many of /dev/shm; both count as its memory."""
    own_uid: bool = True
    """False: the node's uid, without its rights, for what writes into the node's own folders."""


class Launch(msgspec.Struct, frozen=True):
    """A runner to start. `env` is the whole environment of the child."""

    instance: str
    argv: list[str]
    env: dict[str, str]
    cwd: str
    limits: Limits
    sandbox: Sandbox
    assignment: dict[str, Any]
    """Given to the runner as ASSIGN (fornada_sdk/runner/assignment.py)."""
    memo: dict[str, Any]
    """Kept by the keeper and given back to a successor, which knows by it what it adopts."""
    host: str = ""
    """Name of the process that it shares with others of that name; empty: one of its own. The first one's command and bounds count."""
    outbound: bool = False
    """It gets an outbound channel (fornada_sdk/wire/outbound.py): its version names hosts."""
    zygote: str = ""
    """Name of the zygote that is to fork it. Empty, or where that can't: argv is executed."""


class ZygoteOrder(msgspec.Struct, frozen=True):
    """A process that is to import what instances need, and fork them."""

    zygote: str
    """Its name: two orders of one name ask for the same."""
    argv: list[str]
    env: dict[str, str]
    cwd: str
    limits: Limits
    sandbox: Sandbox
    spares: int
    """Processes that it forks ahead of need."""


class ExitStatus(msgspec.Struct, frozen=True):
    """How a child ended."""

    code: int | None
    """None where a signal ended it."""
    signal: int | None
    """Both None: whoever had to reap it didn't say."""
    max_rss_bytes: int = 0
    cpu_s: float = 0.0
    over_memory: bool = False
    """It was ended because it, and what it started, held more than its bound."""
    with_host: bool = False
    """The process that it shared ended, and it with that one: what is said here is that one's end."""


class ProcessPort(Protocol):
    """A live runner, started now or adopted. Descriptors belong to who holds the object; `close` gives them back."""

    instance: str
    pid: int
    """As the operator's kill understands it."""
    memo: Mapping[str, Any]
    link: int
    """Descriptor of this control plane's SEQPACKET end, non-blocking."""
    output: int
    """Descriptor of the read end of the runner's stdout and stderr, non-blocking. Structured lines begin with \\x1e."""
    outbound: int
    """Descriptor of the far end of its outbound channel; -1: it has none."""
    start: str
    """How it came about: exec, fork, or spare."""

    async def exited(self) -> ExitStatus:
        """Returns when the process has been reaped by the keeper; may be awaited by several. Raises KeeperLost."""

    def signal(self, number: int) -> None:
        """To the instance's whole session; after its end it does nothing. Where the process is shared, SIGTERM asks the instance alone
        to end, and SIGKILL ends all that share it. SIGSTOP and SIGCONT are for all processes of the instance, whatever session they
        are in, and stop and continue none that is shared; any other signal, and a control plane that attaches, continue them too."""

    def forget(self) -> None:
        """After `exited`: the keeper may drop its record. Closes the descriptors."""


class KeeperPort(Protocol):
    """Starts processes through the keeper."""

    epoch: int
    """Number of this control plane since the keeper began: upper bits of request ids."""
    predecessor: bool
    """Another control plane still answers, over links of its own, what it had taken before this one replaced it."""

    async def spawn(self, launch: Launch) -> ProcessPort:
        """Raises SpawnRefused, KeeperLost."""

    async def build(
        self, build: str, *, argv: Sequence[str], env: Mapping[str, str], cwd: str, limits: Limits, sandbox: Sandbox, log: str
    ) -> ExitStatus:
        """Runs a build to its end; its output goes to the file `log`. Cancelling the await ends it. Raises SpawnRefused, KeeperLost."""


class SpawnRefused(Exception):
    """The keeper could not start the process; the message is one line."""


class KeeperLost(Exception):
    """The keeper has gone or speaks another language: this control plane can't go on. Where the keeper lives, a successor can."""


class Step(msgspec.Struct, frozen=True):
    """Progress of long work, for CLI, log and API."""

    phase: str
    """building | fetching | spawning | loading | warming"""
    text: str = ""
    fraction: float | None = None


class ProgressSink(Protocol):
    def __call__(self, step: Step, /) -> None: ...


class Provisioned(msgspec.Struct, frozen=True):
    """What an instance of a version is started from: paths, `python` being the environment's interpreter."""

    python: str
    environment: str
    folder: str
    artifacts: dict[str, str]
    """Path in the spec -> absolute path on disk."""
    sdk: str
    """Folder to put on the runner's sys.path; holds fornada_sdk, read-only, named by content."""
    adapters: str = ""
    """Folder of the model's fine-tunes; empty: it applies none."""


class BundleFile(NamedTuple):
    """One file of a model's folder."""

    data: bytes
    executable: bool = False


class Locks(NamedTuple):
    """What a model's dependencies came to, with hashes."""

    environment: str
    """Requirements of the model and its engine; empty where there are none."""
    converts: dict[str, str]
    """Path of a lock to add to the folder (`<script>.lock`) -> its text."""


class ProvisionPort(Protocol):
    """Bundles, environments and artifacts. Safe under concurrency and kill; equal locks share one environment."""

    referenced: Callable[[], Iterable[Version]]
    """Set by the catalogue: the versions whose things a prune leaves alone."""

    async def lock(self, spec: ModelSpec, files: Mapping[str, BundleFile]) -> Locks:
        """Resolves dependencies to hashes (a ready requirements.lock is taken as it is). Raises InvalidSpec, LoadFailed, DiskFull."""

    def ready_lock(self, spec: ModelSpec, files: Mapping[str, BundleFile]) -> str:
        """The environment's lock without asking anybody: for folders that ship one. Raises InvalidSpec where it doesn't fit."""

    async def keep_bundle(self, digest: VersionDigest, files: Mapping[str, BundleFile]) -> str:
        """Writes the folder durably, once; its absolute path. Raises DiskFull."""

    async def prune(self) -> Pruned:
        """Removes what neither `referenced` nor a live process needs."""

    async def environment(self, version: Version, progress: ProgressSink) -> str:
        """Builds or finds the version's environment; its path. Raises LoadFailed, DiskFull."""

    async def artifacts(self, version: Version, progress: ProgressSink) -> dict[str, str]:
        """Fetches or finds the version's artifacts. Raises LoadFailed, DiskFull."""

    def provisioned(self, version: Version, environment: str, artifacts: Mapping[str, str]) -> Provisioned: ...


class PeakKey(NamedTuple):
    """What a measurement of memory holds for."""

    model: ModelName
    digest: VersionDigest
    device: str
    """What it was measured on: cpu, or the name of a kind of card."""
    parameters: str
    """What beside the version decides how much it takes, as text."""


class Peak(NamedTuple):
    """The most that an instance is expected to take, of its device and of the host, as measured."""

    device_bytes: int
    memory_bytes: int


class StorePort(Protocol):
    """The node's durable truth. Synchronous: every call is a few microseconds to milliseconds of SQLite.

    What a call has returned from is on disk. Every call may raise DiskFull; InternalFault where the disk fails otherwise.
    """

    def entries(self) -> list[Entry]:
        """All models, by name."""

    def versions(self, name: ModelName) -> list[Version]:
        """Its versions in the order of their registration; none for an unknown model."""

    def put_version(self, version: Version, *, label: str, name_account: AccountId) -> Entry:
        """Registers a version and points the label at it, in one transaction; a model's first version is stable, whatever the label.
        Raises ModelNotAllowed where the name belongs to another account."""

    def set_label(self, name: ModelName, *, label: str, digest: VersionDigest | None) -> Entry:
        """Moves a label; None takes canary away. Moving stable to `previous` falls back: there is no previous then.
        Raises UnknownModel, Conflict."""

    def set_serving(self, name: ModelName, digest: VersionDigest) -> Entry:
        """This version has taken the name. A label that moves leaves who serves where it is, unless that was removed.
        Raises UnknownModel."""

    def remove_model(self, name: ModelName) -> None:
        """With its versions, counters and pin. An unknown one is fine."""

    def remove_version(self, name: ModelName, digest: VersionDigest) -> None:
        """Raises Conflict for the stable one."""

    def set_pinned(self, name: ModelName, *, pinned: bool) -> None:
        """Also for models that ship with the package and aren't in `entries`."""

    def pins(self) -> set[ModelName]:
        """All pinned models."""

    def counters(self, name: ModelName) -> tuple[int, int]:
        """(loads since it was registered, load attempts since the last reset)"""

    def set_counters(self, name: ModelName, *, loads: int, attempts: int) -> None:
        """Unlike the rest it may be lost with the machine's power for some moments, never with a process: starts of models wait for it."""

    def peaks(self, name: ModelName) -> dict[PeakKey, Peak]:
        """What was measured of the model's versions. They go with the version and with the model."""

    def set_peak(self, key: PeakKey, peak: Peak | None) -> None:
        """None forgets it. As durable as counters."""

    def fences(self) -> dict[str, str]:
        """Device -> why nothing may be placed on it, until an operator says otherwise."""

    def set_fence(self, device: str, reason: str) -> None:
        """An empty reason lifts it."""
