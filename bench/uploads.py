"""The row `uploads`: long bodies over HTTP to a model that asks for their length, on our node and on the yardstick, in turns.

One connection, one body after the other: what is compared is what a body costs, not how many wait for each other.
"""

import argparse
import http.client
import os
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.bodies import MODEL
from bench.clients import Target
from bench.measure import Outcome, tree_cpu_s
from bench.servers import Ours, Server, Yardstick

ROW = "uploads"
SIZES = {150_000: 200, 6_000_000: 20, 100_000_000: 3}
"""Bytes, and how many of them make a cell."""
ANSWER_S = 120.0
TOML = f'name = "@bench/{ROW}"\n[serving]\nmax_body = 134217728\n'


class Sized(Yardstick):
    """The yardstick with the one model of this row."""

    rows = frozenset({ROW})


@dataclass(frozen=True)
class Uploads:
    """Bodies of one size: medians of all rounds."""

    size: int
    ours_ms: float
    theirs_ms: float
    ratio: float
    """Theirs over ours, pair by pair."""
    ours_cpu_ms: float
    theirs_cpu_ms: float
    """For a body, of all of a server's processes."""
    cpu_ratio: float


def row(place: Path, given: argparse.Namespace) -> Outcome:
    """Raises RuntimeError."""
    folder = place / ROW
    folder.mkdir()
    (folder / "model.toml").write_text(TOML)
    (folder / "model.py").write_text(MODEL)
    servers: tuple[Server, Server] = (Ours(), Sized())
    try:
        for server in servers:
            server.start({ROW: folder})
        found = [_size(servers, size, count, given.rounds) for size, count in SIZES.items()]
    finally:
        for server in servers:
            server.stop()
    lines = [
        f"{ROW} {one.size / 1e6:g} MB: {one.ours_ms:.2f} ms to the yardstick's {one.theirs_ms:.2f}: {one.ratio:.2f} ×; "
        f"CPU {one.ours_cpu_ms:.2f} ms to {one.theirs_cpu_ms:.2f}: {one.cpu_ratio:.2f} ×"
        for one in found
    ]
    return Outcome(lines, [], [asdict(one) for one in found])


def _size(servers: tuple[Server, Server], size: int, count: int, rounds: int) -> Uploads:
    body = os.urandom(size)
    cells: tuple[list[tuple[float, float]], ...] = ([], [])
    for number in range(rounds):
        for which in (0, 1)[:: 1 if number % 2 else -1]:
            cells[which].append(_cell(servers[which], body, count))
    ours, theirs = cells
    return Uploads(
        size=size,
        ours_ms=statistics.median(cell[0] for cell in ours),
        theirs_ms=statistics.median(cell[0] for cell in theirs),
        ratio=statistics.median(b[0] / a[0] for a, b in zip(ours, theirs, strict=True)),
        ours_cpu_ms=statistics.median(cell[1] for cell in ours),
        theirs_cpu_ms=statistics.median(cell[1] for cell in theirs),
        cpu_ratio=statistics.median(b[1] / a[1] for a, b in zip(ours, theirs, strict=True)),
    )


def _cell(server: Server, body: bytes, count: int) -> tuple[float, float]:
    """Milliseconds of the median body, and of CPU time for one."""
    target = server.target(ROW, body)
    connection = http.client.HTTPConnection(target.host, target.port, timeout=ANSWER_S)
    try:
        _send(connection, target)
        before = sum(map(tree_cpu_s, server.pids(ROW)))
        took = []
        for _ in range(count):
            began = time.perf_counter()
            _send(connection, target)
            took.append(time.perf_counter() - began)
        return statistics.median(took) * 1e3, (sum(map(tree_cpu_s, server.pids(ROW))) - before) / count * 1e3
    finally:
        connection.close()


def _send(connection: http.client.HTTPConnection, target: Target) -> None:
    connection.request(
        "POST", target.path, target.body, {"Content-Type": "application/octet-stream", "Authorization": f"Bearer {target.token}"}
    )
    answer = connection.getresponse()
    text = answer.read()
    if answer.status != 200 or str(len(target.body)).encode() not in text:
        raise RuntimeError(f"{answer.status} for {len(target.body)} bytes: {text[:300]!r}")
