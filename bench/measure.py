"""What is measured: one cell is one row's payload at one number of connections against one server.

In the row `stream` a token stands for a request: its rate is given by the model, so what is compared is what a token costs.
"""

import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

PACED = "stream"


class Outcome(NamedTuple):
    """Of a row that stands alone."""

    lines: list[str]
    """For people."""
    missed: list[str]
    """Floors that weren't kept."""
    json: Any


@dataclass(frozen=True)
class Cell:
    """The outcome of one cell in one round."""

    row: str
    server: str
    connections: int
    requests_s: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    """CPU time of the server's whole process tree per request, in µs."""
    front_us: float
    """Of it, the part of the process that speaks HTTP: it has one core, so 1e6 / front_us bounds the requests a second."""
    errors: int
    load: float
    """Load average of the last minute when the cell began."""


@dataclass(frozen=True)
class Summary:
    """All rounds of one row at one number of connections: ours against another."""

    row: str
    connections: int
    ours: float
    """Median of requests a second."""
    theirs: float
    server: str
    ratio: float
    """Median of the ratios, pair by pair: neighbours in time share the machine's mood. Above 1 is better for us."""
    ratios: list[float]
    cpu_ratio: float
    """Median, pair by pair, of their CPU time a request to ours: the fairer figure where other work shares the machine's cores."""
    ours_p50_ms: float
    ours_p99_ms: float
    theirs_p50_ms: float
    theirs_p99_ms: float
    ours_cpu_us: float
    theirs_cpu_us: float
    ours_front_us: float
    theirs_front_us: float
    errors: int


def summarize(cells: Sequence[Cell], *, ours: str) -> list[Summary]:
    """One line for each row, number of connections and other server."""
    found = []
    keys = dict.fromkeys((c.row, c.connections, c.server) for c in cells if c.server != ours)
    for row, connections, server in keys:
        mine = [c for c in cells if (c.row, c.connections, c.server) == (row, connections, ours)]
        other = [c for c in cells if (c.row, c.connections, c.server) == (row, connections, server)]
        ratios = [better(a, b) for a, b in zip(mine, other, strict=True) if b.requests_s and a.cpu_us]

        def middle(side: list[Cell], field: str) -> float:
            return float(statistics.median(asdict(cell)[field] for cell in side))

        found.append(
            Summary(
                row=row,
                connections=connections,
                ours=middle(mine, "requests_s"),
                theirs=middle(other, "requests_s"),
                server=server,
                ratio=statistics.median(ratios) if ratios else 0.0,
                cpu_ratio=statistics.median([b.cpu_us / a.cpu_us for a, b in zip(mine, other, strict=True) if a.cpu_us] or [0.0]),
                ratios=[round(ratio, 3) for ratio in ratios],
                ours_p50_ms=middle(mine, "p50_ms"),
                ours_p99_ms=middle(mine, "p99_ms"),
                theirs_p50_ms=middle(other, "p50_ms"),
                theirs_p99_ms=middle(other, "p99_ms"),
                ours_cpu_us=middle(mine, "cpu_us"),
                theirs_cpu_us=middle(other, "cpu_us"),
                ours_front_us=middle(mine, "front_us"),
                theirs_front_us=middle(other, "front_us"),
                errors=sum(cell.errors for cell in mine + other),
            )
        )
    return found


def better(ours: Cell, theirs: Cell) -> float:
    """How many times better ours is: requests a second, or, of what is paced, CPU time."""
    return theirs.cpu_us / ours.cpu_us if ours.row == PACED else ours.requests_s / theirs.requests_s


def load_average() -> float:
    return os.getloadavg()[0]


def tree_cpu_s(pid: int) -> float:
    """CPU seconds used so far by `pid` and everything below it, to the nanosecond where the kernel counts so."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text()
            except OSError:
                continue
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry))
    total, todo = 0.0, [pid]
    while todo:
        current = todo.pop()
        todo += parents.get(current, [])
        total += process_cpu_s(current)
    return total


def process_cpu_s(pid: int) -> float:
    """CPU seconds used so far by the threads of `pid`."""
    total = 0
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            total += int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[0])
    except OSError:
        return 0.0
    return total / 1e9


def memory_bytes(pid: int, *kinds: str) -> int:
    """Of those lines of smaps_rollup: ("Private_Clean", "Private_Dirty") is what a process holds for itself, ("Pss",) its fair share."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(tuple(f"{kind}:" for kind in kinds)))


def private_bytes(pid: int) -> int:
    """What a process holds for itself."""
    return memory_bytes(pid, "Private_Clean", "Private_Dirty")


def as_json(cells: Sequence[Cell], summaries: Sequence[Summary], about: dict[str, Any]) -> dict[str, Any]:
    return {"about": about, "summaries": [asdict(s) for s in summaries], "cells": [asdict(c) for c in cells]}
