"""A whole node in one event loop: the real manager between fakes of everything it talks to."""

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from fornada.core.errors import DiskFull, FornadaError, UnknownModel
from fornada.core.names import LOCAL_ACCOUNT, AccountId, Instant, ModelName, VersionDigest
from fornada.core.ports import Clock, Entry, ExitStatus, KeeperLost, Launch, Peak, PeakKey, Provisioned, SpawnRefused, Step, Version
from fornada.core.requests import AnswerHead, InferenceRequest, Priority
from fornada.core.settings import CpuSettings, DevicesSettings, FakeDeviceSettings, NodeSettings
from fornada.core.specs import spec_from_table
from fornada.node.devices import inventory
from fornada.node.manager import Manager
from fornada.node.memory_use import Held
from fornada.telemetry import Telemetry
from tests.loops.fake_runner import Behaviour, FakeProcess, FakeRunner
from tests.loops.virtual import VirtualClock

SPAWN_S = 0.01
PATIENCE_S = 10_000.0
LITTLE = Held(17 * 1024**2, 17 * 1024**2)
MACHINE_KIB = 1 << 30


def machine(root: Path) -> Path:
    """A machine with a TiB of memory, on which nothing else runs: what the real one has is no test's business."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal: {MACHINE_KIB} kB\nMemAvailable: {MACHINE_KIB} kB\n")
    (root / "proc/self/cgroup").write_text("")
    return root


class Caller:
    """core.requests.Sink: remembers what it was told, and when."""

    def __init__(self) -> None:
        self.answered: Any = None
        self.raw = b""
        self.refused: FornadaError | None = None
        self.items: list[Any] = []
        self.began = False
        self.at = 0.0
        self.done = asyncio.Event()
        self.ticket: Any = None
        self.takes = True
        """Whether it takes the items of a stream as they come."""

    def answer(self, head: AnswerHead, body: bytes | memoryview) -> None:
        self._only_once()
        self.raw = bytes(body)
        self.answered = json.loads(self.raw) if self.raw else None

    def refuse(self, error: FornadaError) -> None:
        self._only_once()
        assert not self.began
        self.refused = error

    def stream_begins(self, head: AnswerHead) -> None:
        assert not self.began and not self.done.is_set()
        self.began = True

    def item(self, data: bytes) -> None:
        assert self.began and not self.done.is_set()
        self.items.append(json.loads(data))
        if self.takes:
            self.ticket.taken(len(data))

    def stream_ends(self, error: FornadaError | None, head: AnswerHead | None = None) -> None:
        assert self.began
        self._only_once()
        self.refused = error

    def _only_once(self) -> None:
        assert not self.done.is_set(), "told twice"
        self.at = asyncio.get_running_loop().time()
        self.done.set()

    def leave(self) -> None:
        self.ticket.leave()

    async def result(self) -> Any:
        """The answer; raises the refusal."""
        await asyncio.wait_for(self.done.wait(), PATIENCE_S)
        if self.refused is not None:
            raise self.refused
        return self.answered


class FakeKeeper:
    """core.ports.KeeperPort with what the manager asks beyond it."""

    def __init__(self, *, epoch: int = 1, adopted: Sequence[FakeProcess] = ()) -> None:
        self.epoch = epoch
        self.predecessor = False
        self.adopted: Sequence[FakeProcess] = adopted
        self.processes: list[FakeProcess] = []
        self.behaviours: dict[str, Behaviour | Callable[[Launch], Behaviour]] = {}
        self.refuses = ""
        self.gone = asyncio.Event()
        self._pid = epoch * 10_000

    async def spawn(self, launch: Launch) -> FakeProcess:
        await asyncio.sleep(SPAWN_S)
        if self.gone.is_set():
            raise KeeperLost("gone")
        if self.refuses:
            raise SpawnRefused(self.refuses)
        self._pid += 1
        process = FakeProcess(launch, self._pid)
        known = self.behaviours.get(launch.assignment["version"]) or self.behaviours.get(launch.assignment["model"]) or Behaviour()
        FakeRunner(process, known if isinstance(known, Behaviour) else known(launch))
        self.processes.append(process)
        return process

    async def build(self, build: str, **_: Any) -> ExitStatus:
        raise NotImplementedError

    def go(self) -> None:
        """It dies: nobody hears of a process any more. The processes themselves live on until somebody ends them."""
        self.gone.set()
        for process in self.alive:
            process.abandon(KeeperLost("gone"))

    def bury(self) -> None:
        """What it left is ended, as the kernel does it."""
        for process in self.processes:
            process.runner.die(signal=9)
            if not process.forgotten:
                process.forget()

    def runners(self, model: str = "") -> list[FakeRunner]:
        return [process.runner for process in self.processes if not model or process.runner.assignment["model"] == model]

    @property
    def alive(self) -> list[FakeProcess]:
        return [process for process in [*self.adopted, *self.processes] if process.alive]


class FakeProvision:
    """core.ports.ProvisionPort, as far as an instance uses it."""

    def __init__(self, keeper: FakeKeeper) -> None:
        self.build_s = 0.0
        self.fetch_s = 0.0
        self.fails: dict[str, FornadaError] = {}
        self.builds = 0
        self.keeper = keeper

    async def environment(self, version: Version, progress: Callable[[Step], None]) -> str:
        self.builds += 1
        progress(Step("building", "numpy", 0.5))
        await asyncio.sleep(self.build_s)
        if self.keeper.gone.is_set():
            raise KeeperLost("gone")
        if version.digest in self.fails:
            raise self.fails[version.digest]
        return "/environments/x"

    async def artifacts(self, version: Version, progress: Callable[[Step], None]) -> dict[str, str]:
        await asyncio.sleep(self.fetch_s)
        return {}

    def provisioned(self, version: Version, environment: str, artifacts: Any) -> Provisioned:
        return Provisioned(f"{environment}/bin/python", environment, version.folder, dict(artifacts), "/sdk")


class FakeCatalog:
    """core.ports.CatalogPort and StorePort in one: models in a dict."""

    def __init__(self) -> None:
        self.models: dict[ModelName, Entry] = {}
        self.known: dict[tuple[ModelName, VersionDigest], Version] = {}
        self.counted: dict[ModelName, tuple[int, int]] = {}
        self.measured: dict[PeakKey, Peak] = {}
        self.fenced: dict[str, str] = {}
        self.full = False
        """Its disk takes nothing that is measured."""
        self.changed: Callable[[ModelName], None] = lambda name: None

    def put(self, name: str, *, digest: str = "", **tables: Any) -> Version:
        """Registers a version and makes it stable. Tells nobody."""
        spec = spec_from_table({"name": name, **tables})
        number = sum(known == name for known, _ in self.known)
        digest = digest or f"{number:x}" * 64
        version = Version(ModelName(name), VersionDigest(digest), LOCAL_ACCOUNT, spec, "/folder", "", 1_600_000_000.0)
        self.known[version.model, version.digest] = version
        self._point(version.model, version.digest)
        return version

    def deploy(self, name: str, **more: Any) -> Version:
        version = self.put(name, **more)
        self.changed(version.model)
        return version

    def forget(self, name: str) -> None:
        del self.models[ModelName(name)]
        self.known = {key: version for key, version in self.known.items() if key[0] != name}
        self.changed(ModelName(name))

    def _point(self, name: ModelName, digest: VersionDigest) -> None:
        digests = tuple(known for model, known in self.known if model == name)
        before = self.models.get(name)
        serving = (before.serving or before.stable) if before else None
        self.models[name] = Entry(name, LOCAL_ACCOUNT, self.known[name, digest], versions=digests, serving=serving)

    # ---- CatalogPort

    def visibility(self, entry: Entry) -> str:
        return entry.stable.spec.visibility or "node"

    def entry(self, name: ModelName) -> Entry | None:
        return self.models.get(name)

    def version(self, name: ModelName, digest: VersionDigest) -> Version:
        if (name, digest) not in self.known:
            raise UnknownModel(f"no version {digest} of {name}")
        return self.known[name, digest]

    def reload(self, name: ModelName) -> None:
        pass

    # ---- StorePort and CatalogPort

    def entries(self, account: AccountId = LOCAL_ACCOUNT) -> list[Entry]:
        return list(self.models.values())

    def set_label(self, name: ModelName, *, label: str, digest: VersionDigest) -> Entry:
        assert label == "stable"
        self._point(name, digest)
        return self.models[name]

    def set_serving(self, name: ModelName, digest: VersionDigest) -> Entry:
        self.models[name] = msgspec.structs.replace(self.models[name], serving=self.known[name, digest])
        return self.models[name]

    def set_pinned(self, name: ModelName, *, pinned: bool) -> None:
        pass

    def counters(self, name: ModelName) -> tuple[int, int]:
        return self.counted.get(name, (0, 0))

    def set_counters(self, name: ModelName, *, loads: int, attempts: int) -> None:
        self.counted[name] = (loads, attempts)

    def peaks(self, name: ModelName) -> dict[PeakKey, Peak]:
        return {key: peak for key, peak in self.measured.items() if key.model == name}

    def set_peak(self, key: PeakKey, peak: Peak | None) -> None:
        self._write()
        self.measured.pop(key, None)
        if peak is not None:
            self.measured[key] = peak

    def fences(self) -> dict[str, str]:
        return dict(self.fenced)

    def _write(self) -> None:
        if self.full:
            raise DiskFull("no space left on the disk that holds /data")

    def set_fence(self, device: str, reason: str) -> None:
        self._write()
        self.fenced.pop(device, None)
        if reason:
            self.fenced[device] = reason


class World:
    """The node and what is around it. `async with World() as world`."""

    def __init__(
        self,
        *,
        fakes: Iterable[FakeDeviceSettings] = (),
        host: str = "",
        keeper: FakeKeeper | None = None,
        catalog: FakeCatalog | None = None,
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fornada-test-")
        self.data_dir = Path(self._folder.name)
        self.clock = clock or VirtualClock()
        self.keeper = keeper or FakeKeeper()
        self.provision = FakeProvision(self.keeper)
        self.catalog = catalog or FakeCatalog()
        self.telemetry = Telemetry(clock=self.clock, data_dir=Path(self._folder.name), stream=None)
        self.crashed = False
        self.faulty = False
        """Something of ours is made to fail: what the log says of it is no surprise."""
        fakes = list(fakes)
        self._machine = machine(Path(self._folder.name))
        self.devices = inventory(DevicesSettings(fake=fakes, cpu=CpuSettings(budget=host)), root=self._machine, cards=())
        self.host_use: dict[int, Held] = {}
        """Pid -> what its process holds; LITTLE unless said."""
        arguments: Any = {"provision": self.provision, "store": self.catalog, "catalog": self.catalog}
        self.node = Manager(
            clock=self.clock,
            keeper=self.keeper,
            devices=self.devices,
            settings=NodeSettings(**settings),
            telemetry=self.telemetry,
            data_dir=Path(self._folder.name),
            measure=lambda pid: self.host_use.get(pid, LITTLE),
            **arguments,
        )
        self.catalog.changed = self.node.catalog_changed
        self.room = self.node._site.room

    async def __aenter__(self) -> "World":
        await self.node.start()
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        faults = self.happened("internal.fault")
        if not self.crashed:
            await self.node.drain(0.0)
            self.telemetry.close()
        if self.keeper.gone.is_set():
            self.keeper.bury()
        self._folder.cleanup()
        if kind is None:
            assert bool(faults) == self.faulty, faults
            assert not self.keeper.alive, "processes are left"

    async def crash(self) -> tuple[FakeKeeper, FakeCatalog]:
        """The control plane is killed: nothing is ended in order. Returns what a successor's World takes."""
        self.crashed = True
        await self.node.close()
        self.telemetry.close()
        left = [process for process in [*self.keeper.adopted, *self.keeper.processes] if not process.forgotten]
        adopted = [process.reattached() if process.alive else process for process in left]
        self.keeper.processes = []
        return FakeKeeper(epoch=self.keeper.epoch + 1, adopted=adopted), self.catalog

    # ---- what tests do

    def others_leave(self, count: int) -> None:
        """Other programs hold so much of the host that processes may grow by `count` bytes."""
        (self._machine / "proc/meminfo").write_text(f"MemTotal: {MACHINE_KIB} kB\nMemAvailable: {count // 1024} kB\n")

    def put(self, name: str = "@test/a", *, behaviour: Behaviour | Callable[[Launch], Behaviour] | None = None, **tables: Any) -> Version:
        version = self.catalog.put(name, **tables)
        if behaviour is not None:
            self.keeper.behaviours[version.digest if len(self.catalog.models[version.model].versions) > 1 else name] = behaviour
        return version

    def ask(
        self,
        model: str = "@test/a",
        /,
        *,
        timeout_s: float | None = None,
        version: VersionDigest | None = None,
        reject_if_busy: bool = False,
        priority: Priority = Priority.NORMAL,
        account: str = LOCAL_ACCOUNT,
        body: bytes | None = None,
        takes: bool = True,
        caller: Caller | None = None,
        **asked: Any,
    ) -> Caller:
        """Submits a request whose JSON is `asked`."""
        caller = caller or Caller()
        caller.takes = takes
        request = InferenceRequest(
            request_id="r",
            trace_id="t",
            account=AccountId(account),
            model=ModelName(model),
            version=version,
            deadline=None if timeout_s is None else Instant(self.clock.now() + timeout_s),
            head=b'{"request_id":"r","trace_id":"t","account":"local"}',
            body=[json.dumps(asked).encode() if body is None else body],
            reject_if_busy=reject_if_busy,
            priority=priority,
        )
        caller.ticket = self.node.submit(request, caller)
        return caller

    async def answer(self, model: str = "@test/a", /, **asked: Any) -> Any:
        return await self.ask(model, **asked).result()

    def state(self, name: str = "@test/a") -> str:
        return self.node.view(ModelName(name)).state

    async def until(self, condition: Callable[[], bool], *, within_s: float = 100.0) -> float:
        """Waits for something to become true; the seconds it took."""
        began = self.clock.now()
        while not condition():
            assert self.clock.now() - began < within_s, f"not within {within_s} s"
            await asyncio.sleep(0.005)
        return self.clock.now() - began

    async def until_state(self, state: str, name: str = "@test/a", *, within_s: float = 100.0) -> float:
        return await self.until(lambda: self.state(name) == state, within_s=within_s)

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels."""
        total = 0.0
        for line in self.telemetry.metrics.render().decode().splitlines():
            if line.startswith((f"{name}{{", f"{name} ")) and all(f'{key}="{value}"' in line for key, value in labels.items()):
                total += float(line.rsplit(" ", 1)[1])
        return total

    def happened(self, event: str) -> list[dict[str, Any]]:
        """Events of that name so far, from the node's log."""
        lines = (Path(self._folder.name) / "logs" / "node.log").read_text().splitlines()
        return [entry for entry in map(json.loads, lines) if entry["event"] == event]


def now() -> float:
    return asyncio.get_running_loop().time()
