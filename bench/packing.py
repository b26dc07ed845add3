"""The row `packed`: what each further model costs in a process that models without code share. One node, no peer has the like.

Memory is what the process holds for itself (private pages) after so many members, less what it held with one, each having answered.
The load is what the runner says of itself: weights read, warmed up. Beside it stands the whole `load` as an operator sees it, of
which HTTP, the plan, the keeper and a directory are the larger part.
"""

import argparse
import json
import shutil
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import clients, network
from bench.measure import Outcome, private_bytes, process_cpu_s
from bench.servers import REPOSITORY, Ours

ROW = "packed"
MEMBERS = 51
LOCK = REPOSITORY / "src/fornada/models/magika/requirements.lock"
"""onnxruntime and numpy: what the engine needs, and nothing else."""
BYTES_MOST = 1_000_000
LOAD_S_MOST = 0.002


@dataclass(frozen=True)
class Packed:
    """For each further member."""

    members: int
    own_bytes: float
    load_s: float
    """Median; load and warm-up."""
    load_p90_s: float
    cpu_s: float
    """Of the shared process, with the first answer."""
    whole_load_s: float
    """Median of POST load."""
    kept_bytes: float
    """What is left of own_bytes after that one was unloaded again."""
    threads: int
    process_bytes: int
    """With one member."""

    @property
    def missed(self) -> list[str]:
        """The floors that weren't kept."""
        found = [f"own memory {self.own_bytes / 1e6:.2f} MB"] if self.own_bytes > BYTES_MOST else []
        return found + ([f"load {self.load_s * 1e3:.2f} ms"] if self.load_s > LOAD_S_MOST else [])


def measure(place: Path, *, members: int = MEMBERS) -> Packed:
    """Starts a node, loads `members` networks with weights of their own, one after the other, and ends it. Raises RuntimeError."""
    body = json.dumps({"inputs": {"x": [network.NUMBERS]}}).encode()
    server = Ours(config=f"[node]\npacked_members = {members}\n")
    try:
        server.start({})
        names = [f"{ROW}-{number:03d}" for number in range(members)]
        for number, name in enumerate(names):
            server.deploy(name, network_folder(place / name, number))
        _load(server, names[0], body)
        pid = server.pid_of(names[0])
        before, cpu_before = private_bytes(pid), process_cpu_s(pid)
        whole = [_load(server, name, body) for name in names[1:]]
        after, cpu_after = private_bytes(pid), process_cpu_s(pid)
        if {server.pid_of(name) for name in names} != {pid}:
            raise RuntimeError("the models don't share one process")
        answers = clients.ask(server.target(names[0], body))
        for name in names[1:]:
            server.unload(name)
        left = private_bytes(pid)
        if clients.ask(server.target(names[0], body)) != answers:
            raise RuntimeError("the one that stayed answers otherwise")
        threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
        loads = [event["load_s"] + event["warmup_s"] for event in server.events("instance.ready")][1:]
    finally:
        server.stop()
    further = members - 1
    return Packed(
        members=members,
        own_bytes=(after - before) / further,
        load_s=statistics.median(loads),
        load_p90_s=sorted(loads)[int(len(loads) * 0.9)],
        cpu_s=(cpu_after - cpu_before) / further,
        whole_load_s=statistics.median(whole),
        kept_bytes=(left - before) / further,
        threads=threads,
        process_bytes=before,
    )


def row(place: Path, given: argparse.Namespace) -> Outcome:
    """Raises RuntimeError."""
    packed = measure(place, members=given.members)
    return Outcome([_line(packed)], packed.missed, asdict(packed))


def _line(packed: Packed) -> str:
    return (
        f"{ROW} {packed.members} members: each further one {packed.own_bytes / 1e6:.2f} MB (floor {BYTES_MOST / 1e6:g}), "
        f"of it {packed.kept_bytes / 1e6:.2f} after its end, "
        f"load and warm-up {packed.load_s * 1e3:.2f} ms, p90 {packed.load_p90_s * 1e3:.2f} (floor {LOAD_S_MOST * 1e3:g}), "
        f"CPU with the first answer {packed.cpu_s * 1e3:.2f} ms, whole load {packed.whole_load_s * 1e3:.1f} ms; "
        f"the process: {packed.process_bytes / 1e6:.1f} MB with one, {packed.threads} threads"
    )


def network_folder(place: Path, seed: int) -> Path:
    """A model without code whose weights are like no other's."""
    place.mkdir()
    network.write(place / "network.onnx", seed=seed)
    shutil.copy(LOCK, place / "requirements.lock")
    (place / "model.toml").write_text(f'name = "@bench/{place.name}"\nengine = "onnx"\n')
    return place


def _load(server: Ours, name: str, body: bytes) -> float:
    """Seconds of the load; then the model answers once."""
    began = time.monotonic()
    server.load(name)
    took = time.monotonic() - began
    clients.ask(server.target(name, body))
    return took
