"""The rows `standing` and `growth`: what a node costs that has nothing to do, and what its catalogue costs a request.

`standing`: seconds from the start of `fornada serve`, on data that was there before, until it takes requests, and the memory of its
three processes then. Beside it a bare uvicorn application of one function: the least that a Python server can be.

`growth`: CPU time of a request to one model on a node that knows no other, and on one that knows so many more.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.request import urlopen

from bench import clients
from bench.measure import Outcome, memory_bytes, tree_cpu_s
from bench.servers import MODELS, Ours, end, free_port, waited

ROW, GROWTH = "standing", "growth"
STARTS = 7
SETTLE_S = 1.0
START_S_MOST, MEMORY_MOST = 0.25, 35_000_000
REGISTERED = 1000
CONNECTIONS = 64
BODY = json.dumps({"x": [1.0, 2.5, -3.0, 4.25]}).encode()
CPU_RATIO_MOST = 1.1
BARE = """
import sys, uvicorn

async def application(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"{}"})

uvicorn.run(application, port=int(sys.argv[1]), http="httptools", loop="uvloop", log_level="error", access_log=False, lifespan="off")
"""


@dataclass(frozen=True)
class Standing:
    """Medians."""

    start_s: float
    main_bytes: int
    """Fair shares (PSS), like the next two."""
    keeper_bytes: int
    control_bytes: int
    bare_start_s: float
    bare_bytes: int

    @property
    def bytes(self) -> int:
        return self.main_bytes + self.keeper_bytes + self.control_bytes


@dataclass(frozen=True)
class Growth:
    """Medians of all rounds."""

    registered: int
    few_cpu_us: float
    many_cpu_us: float
    """Of the whole node, for a request."""
    cpu_ratio: float
    """Many over few, pair by pair."""
    few_bytes: int
    many_bytes: int
    """The control plane's fair share of memory."""
    boot_s: float
    """Of the node that knows many, on its data."""


def row(_: Path, given: argparse.Namespace) -> Outcome:
    """Raises RuntimeError."""
    found = _standing()
    lines = [
        f"{ROW}: ready after {found.start_s * 1e3:.0f} ms (floor {START_S_MOST * 1e3:g}); {found.bytes / 1e6:.1f} MB (floor {MEMORY_MOST / 1e6:g}): "
        f"main {found.main_bytes / 1e6:.1f}, keeper {found.keeper_bytes / 1e6:.1f}, control plane {found.control_bytes / 1e6:.1f}; "
        f"bare uvicorn {found.bare_start_s * 1e3:.0f} ms, {found.bare_bytes / 1e6:.1f} MB"
    ]
    missed = [f"ready after {found.start_s * 1e3:.0f} ms"] if found.start_s > START_S_MOST else []
    missed += [f"{found.bytes / 1e6:.1f} MB"] if found.bytes > MEMORY_MOST else []
    return Outcome(lines, missed, asdict(found))


def growth(place: Path, given: argparse.Namespace) -> Outcome:
    """Raises RuntimeError."""
    found = _growth(place / GROWTH, given.registered, rounds=given.rounds, seconds=given.seconds)
    line = (
        f"{GROWTH} {found.registered} models: a request takes {found.many_cpu_us:.1f} µs of CPU time, alone {found.few_cpu_us:.1f}: "
        f"{found.cpu_ratio:.2f} × (floor {CPU_RATIO_MOST:g}); control plane {found.many_bytes / 1e6:.1f} MB to {found.few_bytes / 1e6:.1f}, "
        f"ready after {found.boot_s * 1e3:.0f} ms"
    )
    missed = [f"{found.cpu_ratio:.2f} × the CPU time of a node with one"] if found.cpu_ratio > CPU_RATIO_MOST else []
    return Outcome([line], missed, asdict(found))


def _standing() -> Standing:
    server = Ours()
    starts, sizes, bare = [], [], []
    try:
        server.boot()
        for _ in range(STARTS):
            server.halt()
            starts.append(server.boot())
            time.sleep(SETTLE_S)
            sizes.append(_sizes(server))
            bare.append(_bare())
    finally:
        server.stop()
    main, keeper, control = (int(statistics.median(column)) for column in zip(*sizes, strict=True))
    bare_start_s, bare_bytes = (statistics.median(column) for column in zip(*bare, strict=True))
    return Standing(statistics.median(starts), main, keeper, control, bare_start_s, int(bare_bytes))


def _sizes(server: Ours) -> tuple[int, int, int]:
    """Of main, keeper and control plane."""
    main, control = server.pids(ROW)[0], server.front(ROW)
    (keeper,) = map(int, Path(f"/proc/{main}/task/{main}/children").read_text().split())
    return memory_bytes(main, "Pss"), memory_bytes(keeper, "Pss"), memory_bytes(control, "Pss")


def _bare() -> tuple[float, int]:
    port = free_port()
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-c", BARE, str(port)], stdin=subprocess.DEVNULL)
    try:
        waited(lambda: urlopen(f"http://127.0.0.1:{port}/", timeout=5).status == 200, "the bare application")
        took = time.monotonic() - began
        time.sleep(SETTLE_S)
        return took, memory_bytes(process.pid, "Pss")
    finally:
        end(process)


def _growth(place: Path, registered: int, *, rounds: int, seconds: float) -> Growth:
    few, many = Ours(), Ours()
    try:
        for server in (few, many):
            server.start({"echo": MODELS / "echo"})
        for number in range(registered):
            folder = place / f"m{number:04d}"
            folder.mkdir(parents=True)
            (folder / "model.toml").write_text(f'name = "@bench/{folder.name}"\n')
            (folder / "model.py").write_text(f"def handle_request(request, context):\n    return {number}\n")
            many.deploy(folder.name, folder)
        many.halt()
        boot_s = many.boot()
        many.load("echo")
        cells: dict[Ours, list[float]] = {few: [], many: []}
        for number in range(rounds):
            for server in (few, many)[:: 1 if number % 2 else -1]:
                cells[server].append(_cpu_us(server, seconds))
        ratios = [b / a for a, b in zip(cells[few], cells[many], strict=True)]
        return Growth(
            registered,
            statistics.median(cells[few]),
            statistics.median(cells[many]),
            statistics.median(ratios),
            memory_bytes(few.front(GROWTH), "Pss"),
            memory_bytes(many.front(GROWTH), "Pss"),
            boot_s,
        )
    finally:
        few.stop()
        many.stop()


def _cpu_us(server: Ours, seconds: float) -> float:
    """CPU time of the whole node for a request. Raises RuntimeError where one fails."""
    target = server.target("echo", BODY)
    clients.drive(target, connections=CONNECTIONS, seconds=1)
    before = sum(map(tree_cpu_s, server.pids(GROWTH)))
    seen = clients.drive(target, connections=CONNECTIONS, seconds=seconds)
    if seen.errors:
        raise RuntimeError(f"{seen.errors} of {seen.requests} requests failed")
    return (sum(map(tree_cpu_s, server.pids(GROWTH))) - before) / seen.requests * 1e6
