"""The row `density`: how many idle models one GiB holds, here and where each model has a server of its own.

Everybody serves the same network of 784 numbers, and every copy has answered once. What a copy more takes is the difference between
so many copies and one, divided by the rest of them: what copies share (libraries, our keeper and control plane) counts once, in the base. All figures
are proportional shares (PSS) of whole process trees, so that nothing is counted twice.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import clients, network
from bench.measure import Outcome, load_average
from bench.packing import network_folder
from bench.peers import PEERS, MLServerWorkers, Peer
from bench.servers import MODELS, NotInstalled, Ours, waited
from fornada.node.memory_use import held_by

ROW = "density"
COPIES = 8
PEER_COPIES = 3
"""A peer's copies take hundreds of MB and many seconds each; what the next one takes is the same."""
GIB = 1024**3
LEAST = (8.0, 30.0)
"""Times as many models in a GiB as the best peer, with a process each and with one for all."""
CALM_S = 8.0
"""Until what started has come to a rest: idle models of ours are parked by then."""


@dataclass(frozen=True)
class Density:
    """Of one way to serve models."""

    who: str
    copies: int
    one_bytes: int
    """With a single model."""
    all_bytes: int
    load: float

    @property
    def each_bytes(self) -> float:
        """What a copy more takes."""
        return (self.all_bytes - self.one_bytes) / (self.copies - 1)

    @property
    def in_a_gib(self) -> int:
        """Models, all that serves them included."""
        return max(0, 1 + int((GIB - self.one_bytes) / self.each_bytes)) if self.one_bytes <= GIB else 0

    def line(self) -> str:
        return (
            f"{ROW} {self.who:38} {self.each_bytes / 1e6:7.1f} MB for each idle model, {self.one_bytes / 1e6:6.1f} MB with one, "
            f"{self.in_a_gib:5d} models in 1 GiB ({self.copies} copies, load {self.load:.1f})"
        )


def row(place: Path, given: argparse.Namespace) -> Outcome:
    """Raises RuntimeError."""
    (place / ROW).mkdir()
    found, lines = (
        [_ours(place / ROW, "a process each", given.copies, _own), _ours(place / ROW, "one process for all", given.copies, _packed)],
        [],
    )
    for kind in (peer for peer in PEERS if peer is not MLServerWorkers):
        try:
            found.append(_peer(kind))
        except (NotInstalled, OSError, RuntimeError) as error:
            lines.append(f"  {ROW} {kind.name}: not measured: {error!s:.300}")
    best = max((one.in_a_gib for one in found[2:]), default=0)
    ratios = [one.in_a_gib / best for one in found[:2]] if best else []
    missed = [f"{ratio:.1f} times the best peer's models" for ratio, least in zip(ratios, LEAST, strict=False) if ratio < least]
    if ratios:
        lines.append(f"{ROW}: {ratios[0]:.1f} and {ratios[1]:.1f} times the models of the best peer")
    return Outcome([one.line() for one in found] + lines, missed, {"rows": [{**asdict(one), "in_a_gib": one.in_a_gib} for one in found]})


def _ours(place: Path, how: str, copies: int, folder: Callable[[Path, int], tuple[Path, bytes]]) -> Density:
    server = Ours(config=f"[node]\npacked_members = {copies}\npark_after_s = 1\n")
    try:
        server.start({})

        def serve(numbers: Iterable[int]) -> None:
            for number in numbers:
                name = f"{how.replace(' ', '-')}-{number:03d}"
                made, body = folder(place / name, number)
                server.deploy(name, made)
                server.load(name)
                clients.ask(server.target(name, body))
                if not server.instance_of(name)["host"]:  # a process that several share goes on
                    waited(lambda name=name: server.instance_of(name)["parked"], f"{name} parked")

        serve([0])
        time.sleep(CALM_S)
        one = _held(server.pids(ROW))
        serve(range(1, copies))
        time.sleep(CALM_S)
        return Density(f"fornada, {how}", copies, one, _held(server.pids(ROW)), load_average())
    finally:
        server.stop()


def _own(place: Path, number: int) -> tuple[Path, bytes]:
    """With code of its own, and so with a process of its own."""
    place.mkdir()
    for file in (MODELS / "onnx").iterdir():
        (place / file.name).write_bytes(file.read_bytes())
    network.write(place / "network.onnx", seed=number)
    return place, json.dumps({"x": network.NUMBERS}).encode()


def _packed(place: Path, number: int) -> tuple[Path, bytes]:
    """Without code."""
    return network_folder(place, number), json.dumps({"inputs": {"x": [network.NUMBERS]}}).encode()


def _peer(kind: type[Peer]) -> Density:
    """One server for each model."""
    pids: list[int] = []
    body = json.dumps({"x": network.NUMBERS}).encode()
    with ExitStack() as stack:

        def serve() -> None:
            server = kind()
            stack.callback(server.stop)
            server.start({"onnx": Path()})
            clients.ask(server.target("onnx", body))
            pids.extend(server.pids("onnx"))

        serve()
        time.sleep(CALM_S)
        one = _held(pids)
        for _ in range(PEER_COPIES - 1):
            serve()
        time.sleep(CALM_S)
        return Density(f"{kind.name}, a server each", PEER_COPIES, one, _held(pids), load_average())


def _held(pids: Iterable[int]) -> int:
    """Bytes of these trees."""
    return sum(held_by(pid).bytes for pid in pids)
