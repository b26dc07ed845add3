"""The row `coldstart`: from a request for a model that isn't running to its answer, over HTTP, by how its process comes about.

Everything is warm but the process: environment, weights and files lie where they belong. Executed, forked from a zygote, or taken from
a parked spare, each on a node of its own with everything on; the answers are of the model itself. Beside it stands what an idle
instance and a parked spare keep for themselves.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import clients, network
from bench.measure import Outcome, private_bytes
from bench.packing import LOCK
from bench.servers import Ours

ROW = "coldstart"
STARTS = 12
STACKS = ("plain", "numpy", "onnx")
"""What is measured unless others are asked for; torch and tensorflow are large."""
WAYS = {"exec": "zygotes = false", "fork": "spares = 0", "spare": "spares = 1"}
SETTLE_S = 0.4
"""Between two starts: a spare is parked again by then."""
READY_S = 120.0
DIGITS = 'import {library}\n\n\ndef handle_request(request, context):\n    return {{"sum": {code}}}\n'
CODES = {
    "numpy": ("numpy", 'float(numpy.asarray(request.body.json["x"]).sum())'),
    "torch": ("torch", 'float(torch.tensor(request.body.json["x"]).sum())'),
    "tensorflow": ("tensorflow", 'float(tensorflow.reduce_sum(tensorflow.constant(request.body.json["x"])))'),
}
PACKAGES = {"numpy": "numpy>=2,<3", "torch": "torch>=2.4,<3", "tensorflow": "tensorflow-cpu>=2.18,<3"}


@dataclass(frozen=True)
class ColdStart:
    """One stack in one way."""

    stack: str
    way: str
    starts: int
    median_s: float
    best_s: float
    worst_s: float
    cpu_s: float
    """Of all of the node's processes for one start, its answer and its end: what other work on the machine doesn't lengthen."""
    idle_bytes: int
    """Private memory of the instance, having answered once."""
    spare_bytes: int
    """Of a parked spare; 0 where there is none."""


def measure(place: Path, *, stacks: tuple[str, ...] = STACKS, starts: int = STARTS, packages: tuple[str, ...] = ()) -> list[ColdStart]:
    """`packages` are requirements that take the place of those in PACKAGES that begin alike. Raises RuntimeError where the processes
    don't come about as they should."""
    found = []
    for stack in stacks:
        wanted = PACKAGES.get(stack, "")
        wanted = next((given for given in packages if re.split("[<>=!~]", given)[0] == re.split("[<>=!~]", wanted)[0]), wanted)
        folder, body = _folder(place / f"{ROW}-{stack}", stack, wanted)
        found += [_way(stack, way, folder, body, starts) for way in WAYS]
    return found


def row(place: Path, given: argparse.Namespace) -> Outcome:
    """Raises RuntimeError."""
    found = measure(place, stacks=tuple(given.stacks.split(",")), starts=given.starts, packages=tuple(given.packages.split(",")))
    return Outcome(_lines(found), [], [asdict(one) for one in found])


def _lines(rows: list[ColdStart]) -> list[str]:
    lines = []
    for row in rows:
        spare = f", a spare {row.spare_bytes / 1e6:.1f} MB" if row.spare_bytes else ""
        span = f"{row.best_s * 1e3:.1f} to {row.worst_s * 1e3:.1f}"
        lines.append(
            f"{ROW} {row.stack} {row.way}: {row.median_s * 1e3:.1f} ms ({span}), CPU {row.cpu_s * 1e3:.1f} ms, "
            f"idle {row.idle_bytes / 1e6:.1f} MB of its own{spare}"
        )
    return lines


def _way(stack: str, way: str, folder: Path, body: bytes, starts: int) -> ColdStart:
    server = Ours(config=f"[node]\n{WAYS[way]}\n")
    try:
        server.start({})
        server.deploy(ROW, folder)
        server.load(ROW)
        target = server.target(ROW, body)
        clients.ask(target)
        if way != "exec":
            wait_for_zygote(server)
        took = []
        cpu_before = _cpu_s(server.pids(ROW))
        for _ in range(starts):
            server.unload(ROW)
            time.sleep(SETTLE_S)
            began = time.perf_counter()
            clients.ask(target)
            took.append(time.perf_counter() - began)
        server.unload(ROW)
        time.sleep(SETTLE_S)
        cpu_s = (_cpu_s(server.pids(ROW)) - cpu_before) / starts
        clients.ask(target)
        came_about = [event["start"] for event in server.events("instance.spawned")][-starts - 1 : -1]
        if came_about.count(way) < starts * 0.8:
            raise RuntimeError(f"{stack}: the processes weren't to be started by {came_about} but by {way}")
        took = [seconds for seconds, start in zip(took, came_about, strict=True) if start == way]
        pid = server.pid_of(ROW)
        time.sleep(SETTLE_S)
        spares = [private_bytes(spare) for spare in named("fornada-spare", server.pids(ROW))]
        return ColdStart(
            stack=stack,
            way=way,
            starts=len(took),
            median_s=statistics.median(took),
            best_s=min(took),
            worst_s=max(took),
            cpu_s=cpu_s,
            idle_bytes=private_bytes(pid),
            spare_bytes=max(spares, default=0),
        )
    finally:
        server.stop()


def wait_for_zygote(server: Ours) -> None:
    """Until it could fork, and a spare is parked. Raises RuntimeError."""
    deadline = time.monotonic() + READY_S
    while not any(event["state"] == "ready" for event in server.events("zygote.changed")):
        if time.monotonic() > deadline:
            raise RuntimeError(f"no zygote after {READY_S:g} s: {server.events('zygote.changed')}")
        time.sleep(0.05)
    time.sleep(SETTLE_S)


def _folder(place: Path, stack: str, package: str) -> tuple[Path, bytes]:
    """The model, and a request for it."""
    place.mkdir()
    body = json.dumps({"x": [1.0, 2.5, -3.0, 4.25]}).encode()
    if stack == "plain":
        (place / "model.toml").write_text(f'name = "@bench/{ROW}"\n')
        (place / "model.py").write_text("def handle_request(request, context):\n    return request.body.json\n")
    elif stack == "onnx":
        network.write(place / "network.onnx")
        shutil.copy(LOCK, place / "requirements.lock")
        (place / "model.toml").write_text(f'name = "@bench/{ROW}"\nengine = "onnx"\n[serving]\npacked = false\n')
        body = json.dumps({"inputs": {"x": [[0.5] * network.COLUMNS]}}).encode()
    else:
        library, code = CODES[stack]
        memory = "" if stack == "numpy" else '[resources]\nmemory = "2GiB"\n'
        packages = f'[python]\ndependencies = ["{package}"]\npreload = ["{library}"]\n'
        (place / "model.toml").write_text(f'name = "@bench/{ROW}"\n{packages}{memory}')
        (place / "model.py").write_text(DIGITS.format(library=library, code=code))
    return place, body


def named(name: str, roots: list[int]) -> list[int]:
    """Processes of the trees that call themselves so."""
    return [pid for pid in _trees(roots) if Path(f"/proc/{pid}/comm").read_text().strip() == name]


def _cpu_s(roots: list[int]) -> float:
    """Of the trees' processes, and of all that have ended in them."""
    ticks = 0
    for pid in _trees(roots):
        ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _trees(roots: list[int]) -> list[int]:
    found, waiting = [], list(roots)
    while waiting:
        pid = waiting.pop()
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except FileNotFoundError:
            continue
        found.append(pid)
        waiting += map(int, children)
    return found
