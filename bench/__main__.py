"""`python -m bench`: interleaved rounds A B C A B C of our node, the yardstick and the peers, medians, ratios pair by pair.

Rows: `echo` and `mlp` against the yardstick, which shares our runner, and against ourselves without isolation and without keys; `onnx`, one network,
and `stream`, paced tokens, against the peers.
The others stand alone: `packed`, what each further model costs in a process that several share; `coldstart`, from a request for a model
that isn't running to its answer, executed, forked and from a spare; `idle`, a hundred that have nothing to do, and one for each engine;
`density`, how many of them one GiB holds, beside servers of one model each; `bodies`, long ones, on two ways from the node to a runner;
`uploads`, the same over HTTP, beside the yardstick; `tensors`, one tensor through each door for it; `standing`, what a node costs that only
stands there; `growth`, a request with many models registered; `beside`, what a batch in the background costs those who wait for an answer.
"""

import argparse
import json
import math
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench import beside, bodies, clients, coldstart, density, idle, network, packing, peers, standing, tensors, uploads
from bench.measure import PACED, Cell, Outcome, Summary, as_json, load_average, process_cpu_s, summarize, tree_cpu_s
from bench.servers import MODELS, NotInstalled, Ours, Server, Unconfined, Unlocked, Yardstick

ECHO_BODY = json.dumps({"x": [1.0, 2.5, -3.0, 4.25]}).encode()
MLP_BODY = json.dumps({"x": network.NUMBERS}).encode()
STREAM_BODY = json.dumps({"x": [0.5], "stream": True}).encode()
BODIES = {"echo": ECHO_BODY, "mlp": MLP_BODY, "onnx": MLP_BODY, PACED: STREAM_BODY}
TOKENS, PAUSE_S, STREAMS = 100, 0.02, 64
"""What bench/models/stream and the peers' streams do: 64 of them, each 100 tokens at 50 a second."""
ALONE: dict[str, Callable[[Path, argparse.Namespace], Outcome]] = {
    packing.ROW: packing.row,
    coldstart.ROW: coldstart.row,
    idle.ROW: idle.row,
    density.ROW: density.row,
    bodies.ROW: bodies.row,
    uploads.ROW: uploads.row,
    tensors.ROW: tensors.row,
    standing.ROW: standing.row,
    standing.GROWTH: standing.growth,
    beside.ROW: beside.row,
}
"""Rows that aren't compared cell by cell."""
ROWS = ",".join([*BODIES, *ALONE])
FLOORS = {
    ("echo", 64, Yardstick.name): 1.3,
    ("echo", 1, Yardstick.name): 0.9,
    ("mlp", 64, Yardstick.name): 1.3,
    ("mlp", 1, Yardstick.name): 0.9,
    ("echo", 64, Unconfined.name): 0.95,
    ("mlp", 64, Unconfined.name): 0.95,
    ("echo", 64, Unlocked.name): 0.95,
    ("mlp", 64, Unlocked.name): 0.95,
    ("onnx", 64, peers.LitServe.name): 8.0,
    ("onnx", 64, peers.BentoML.name): 8.0,
    ("onnx", 64, peers.MLServerWorkers.name): 8.0,
    ("onnx", 64, peers.MLServer.name): 4.0,
    (PACED, STREAMS, peers.LitServe.name): 8.0,
    (PACED, STREAMS, peers.BentoML.name): 3.0,
    (PACED, STREAMS, peers.MLServer.name): 3.0,
}
"""Ratios that this release promises: of requests a second, and for the stream of CPU time a token."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0; with --check 1 where a floor was missed."""
    given = _parser().parse_args(arguments)
    connections = [int(number) for number in given.connections.split(",")]
    asked = given.rows.split(",")
    if strangers := [row for row in asked if row not in (*BODIES, *ALONE)]:
        raise SystemExit(f"there is no row {', '.join(strangers)}; there are {ROWS}")
    rows = [row for row in asked if row in BODIES]
    about = f"{given.rounds} rounds of {given.seconds:g} s a cell; {os.cpu_count()} CPUs"
    print(f"client: {clients.name()}; {about}; load {load_average():.2f}")
    cells: list[Cell] = []
    absent: dict[str, str] = {}
    servers: tuple[type[Ours | Yardstick | peers.Peer], ...] = (Ours, Unconfined, Unlocked, Yardstick, *peers.PEERS)
    servers = tuple(kind for kind in servers if kind.rows.intersection(rows))
    with tempfile.TemporaryDirectory(prefix="fornada-bench-models-") as place:
        folders = {row: _folder(row, Path(place), plain=given.plain) for row in rows}
        for number in range(given.rounds):
            for made in servers:
                if made.name in absent:
                    continue
                try:
                    cells += _round(made(), folders, connections, warm_s=given.warm, seconds=given.seconds)
                except (NotInstalled, OSError, RuntimeError, ExceptionGroup) as error:
                    if made is Ours:
                        raise
                    why = str(error) if isinstance(error, NotInstalled) else f"it failed on the way: {error!r:.300}"
                    absent[made.name] = f"{made.name}: not measured: {why}"
                    cells = [cell for cell in cells if cell.server != made.name]
            print(f"round {number + 1} of {given.rounds} done, load {load_average():.2f}", file=sys.stderr)
        alone = {row: ALONE[row](Path(place), given) for row in asked if row in ALONE}
    summaries = summarize(cells, ours=Ours.name)
    if rows:
        _print(summaries)
    for line in [line for outcome in alone.values() for line in outcome.lines]:
        print(line)
    for line in [*absent.values(), *(peers.not_served(rows) if rows else ())]:
        print(f"  {line}")
    if given.json:
        more = {row: outcome.json for row, outcome in alone.items()}
        Path(given.json).write_text(json.dumps({**as_json(cells, summaries, _about(given)), **more}, indent=1))
    missed = [s for s in summaries if s.ratio < _floor(s)]
    for s in missed:
        print(f"below its floor of {_floor(s):g}: {s.row} at {s.connections} against {s.server}: {s.ratio:.2f}")
    beyond = [f"{row}: {text}" for row, outcome in alone.items() for text in outcome.missed]
    for text in beyond:
        print(f"beyond its floor: {text}")
    return 1 if (missed or beyond) and given.check else 0


def _folder(row: str, place: Path, *, plain: bool) -> Path:
    """The model of a row, complete."""
    source = MODELS / ("mlp-plain" if row == "mlp" and plain else row)
    if row != "onnx":
        return source
    network.write(peers.NETWORK)
    whole = place / row
    shutil.copytree(source, whole)
    shutil.copy(peers.NETWORK, whole)
    return whole


def _floor(summary: Summary) -> float:
    return FLOORS.get((summary.row, summary.connections, summary.server), 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of all servers, interleaved (at least 3 for a figure to quote)")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a cell")
    parser.add_argument("--warm", type=float, default=1.0, help="seconds before each cell that don't count")
    parser.add_argument("--connections", default="1,16,64")
    parser.add_argument("--rows", default=ROWS, help=ROWS)
    parser.add_argument("--members", type=int, default=packing.MEMBERS, help="models of the row packed")
    parser.add_argument("--starts", type=int, default=coldstart.STARTS, help="of each stack and way in the row coldstart")
    parser.add_argument("--stacks", default=",".join(coldstart.STACKS), help="plain, numpy, onnx, torch, tensorflow: of the row coldstart")
    parser.add_argument(
        "--packages", default="", help="requirements for them, such as torch==2.13.0, where others than the newest are wanted"
    )
    parser.add_argument("--instances", type=int, default=idle.INSTANCES, help="models of the row idle")
    parser.add_argument("--copies", type=int, default=density.COPIES, help="models of the row density")
    parser.add_argument("--registered", type=int, default=standing.REGISTERED, help="models of the row growth")
    parser.add_argument("--beside-model", default=beside.MODEL, help="model of the row beside, one of the catalogue")
    parser.add_argument("--beside-body", default=beside.BODY, help="a request for it, as JSON")
    parser.add_argument("--plain", action="store_true", help="mlp without numpy, where packages can't be reached")
    parser.add_argument("--json", help="write everything to this file too")
    parser.add_argument("--check", action="store_true", help="fail where a promised ratio is missed")
    return parser


def _round(server: Server, folders: dict[str, Path], connections: Sequence[int], *, warm_s: float, seconds: float) -> list[Cell]:
    """Starts the server afresh, drives every cell, ends it."""
    cells = []
    try:
        server.start({row: folder for row, folder in folders.items() if row in server.rows})
        for row in folders:
            if row in server.rows:
                numbers = [STREAMS] if row == PACED else connections
                cells += [_cell(server, row, number, warm_s=warm_s, seconds=seconds) for number in numbers]
    finally:
        server.stop()
    return cells


def _cell(server: Server, row: str, connections: int, *, warm_s: float, seconds: float) -> Cell:
    target = server.target(row, BODIES[row])

    def drive(seconds: float) -> clients.Outcome:
        if row == PACED:
            return clients.listen(target, streams=connections, tokens=TOKENS, pause_s=PAUSE_S)
        return clients.drive(target, connections=connections, seconds=seconds)

    if warm_s:
        drive(warm_s)
    load = load_average()
    before, front_before = _cpu(server, row)
    seen = drive(seconds)
    after, front_after = _cpu(server, row)
    rate = seen.requests / seen.duration_s
    each = 1e6 / seen.requests if seen.requests else math.inf
    cpu_us, front_us = (after - before) * each, (front_after - front_before) * each
    return Cell(row, server.name, connections, rate, seen.p50_ms, seen.p99_ms, cpu_us, front_us, seen.errors, load)


def _cpu(server: Server, row: str) -> tuple[float, float]:
    """CPU seconds of the whole server and of its front."""
    return sum(tree_cpu_s(pid) for pid in server.pids(row)), process_cpu_s(server.front(row))


def _print(summaries: Sequence[Summary]) -> None:
    titles = ("requests/s", "p50 ms", "p99 ms", "CPU µs", "of it front")
    print(
        f"{'row':6} {'conn':>4} {'ratio':>6} {'floor':>5} {'of CPU':>6}  "
        + " ".join(f"{title:>15}" for title in titles)
        + "  errors  pairs (ours / theirs)"
    )
    for s in summaries:
        columns = (
            f"{s.ours:.0f} / {s.theirs:.0f}",
            f"{s.ours_p50_ms:.2f} / {s.theirs_p50_ms:.2f}",
            f"{s.ours_p99_ms:.2f} / {s.theirs_p99_ms:.2f}",
            f"{s.ours_cpu_us:.1f} / {s.theirs_cpu_us:.1f}",
            f"{s.ours_front_us:.1f} / {s.theirs_front_us:.1f}",
        )
        pairs = " ".join(f"{ratio:.2f}" for ratio in s.ratios)
        print(
            f"{s.row:6} {s.connections:4d} {s.ratio:6.2f} {_floor(s) or '':>5} {s.cpu_ratio:6.2f}  "
            + " ".join(f"{column:>15}" for column in columns)
            + f"  {s.errors:6d}  {pairs} vs {s.server}"
        )


def _about(given: argparse.Namespace) -> dict[str, Any]:
    return {
        "client": clients.name(),
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, {platform.release()}",
        "load": load_average(),
        "arguments": vars(given),
    }


if __name__ == "__main__":
    sys.exit(main())
