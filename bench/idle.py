"""The row `idle`: what models cost that are loaded and have nothing to do, and how soon one of them answers.

A hundred of one environment, each with a process of its own, forked from their zygote; then some of the catalogue's: what their
processes keep for themselves beside the size of their weights. All of them once they are parked.
"""

import argparse
import json
import statistics
import time
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import clients
from bench.coldstart import WAYS, named, wait_for_zygote
from bench.measure import Outcome, load_average, private_bytes
from bench.servers import REPOSITORY, Ours, waited

ROW = "idle"
INSTANCES = 100
WOKEN = 20
OWN_BYTES_MOST = 3_000_000
MODEL = "def handle_request(request, context):\n    return request.body.json\n"
MODELS = {"magika": "onnx", "minilm": "onnx", "mobilenet-v2": "litert", "smollm2-135m-instruct": "gguf"}
"""Of the catalogue -> their engine. A mirror may be needed: FORNADA_MIRROR."""
PARKED_S = 60.0


@dataclass(frozen=True)
class Crowd:
    """Many of one environment."""

    instances: int
    forked: int
    """Of them; the others were executed."""
    own_bytes: int
    """Of one, median."""
    worst_bytes: int
    total_bytes: int
    """Of all of them, their zygote and its spare."""
    woken_s: float
    """From the request to the answer of one that was parked, median."""
    awake_s: float
    """The same request once more."""
    load: float


@dataclass(frozen=True)
class Engine:
    """One model."""

    engine: str
    model: str
    weights_bytes: int
    loaded_bytes: int
    """Of its own, having answered."""
    parked_bytes: int


def row(place: Path, given: argparse.Namespace) -> Outcome:
    """Raises RuntimeError."""
    crowd = _crowd(place / ROW, given.instances)
    lines = [
        f"{ROW}: {crowd.instances} parked, {crowd.forked} of them forked: {crowd.own_bytes / 1e6:.2f} MB of its own each (at most "
        f"{crowd.worst_bytes / 1e6:.2f}), {crowd.total_bytes / 1e6:.0f} MB with their zygote; one answers after {crowd.woken_s * 1e3:.2f} ms, "
        f"and then {crowd.awake_s * 1e3:.2f}; load {crowd.load:.1f}"
    ]
    engines: list[Engine] = []
    for model, engine in MODELS.items():
        try:
            found = _engine(engine, model)
        except RuntimeError as error:  # its packages or weights can't be had here
            lines.append(f"  {ROW} {engine} ({model}): not measured: {error!s:.300}")
            continue
        engines.append(found)
        lines.append(
            f"{ROW} {engine} ({model}): {found.parked_bytes / 1e6:.1f} MB of its own, {found.parked_bytes / found.weights_bytes:.2f} × its "
            f"weights of {found.weights_bytes / 1e6:.1f} MB; before it was parked {found.loaded_bytes / 1e6:.1f} MB"
        )
    missed = [f"{crowd.own_bytes / 1e6:.2f} MB of its own each"] if crowd.own_bytes > OWN_BYTES_MOST else []
    return Outcome(lines, missed, {"crowd": asdict(crowd), "engines": [asdict(one) for one in engines]})


def _crowd(place: Path, instances: int) -> Crowd:
    server = Ours(config=f"[node]\n{WAYS['spare']}\n")
    body = json.dumps({"x": [1.0, 2.5]}).encode()
    names = [f"{ROW}-{number:03d}" for number in range(instances)]
    try:
        server.start({})
        for number, name in enumerate(names):
            folder = place / name
            folder.mkdir(parents=True)
            (folder / "model.toml").write_text(f'name = "@bench/{name}"\n')
            (folder / "model.py").write_text(MODEL)
            server.deploy(name, folder)
            server.load(name)
            clients.ask(server.target(name, body))
            if number == 0:
                wait_for_zygote(server)
        waited(lambda: _parked(server, names), "all of them parked", within_s=PARKED_S)
        sizes = [private_bytes(server.pid_of(name)) for name in names]
        others = [*named("fornada-zygote", server.pids(ROW)), *named("fornada-spare", server.pids(ROW))]
        total = sum(sizes) + sum(map(private_bytes, others))
        load, woken, awake = load_average(), [], []
        for name in names[:: max(1, instances // WOKEN)]:
            woken.append(_answer_s(server, name, body))
            awake.append(_answer_s(server, name, body))
        # The first was executed: there was no zygote yet.
        came_about = [event["start"] for event in server.events("instance.spawned")]
        forked = sum(start in ("fork", "spare") for start in came_about)
        own = int(statistics.median(sizes))
        return Crowd(instances, forked, own, max(sizes), total, statistics.median(woken), statistics.median(awake), load)
    finally:
        server.stop()


def _engine(engine: str, model: str) -> Engine:
    server = Ours(config=f"[node]\n{WAYS['spare']}\npacked_members = 0\n")
    toml = tomllib.loads((REPOSITORY / "src/fornada/models" / model / "model.toml").read_text())
    try:
        server.start({})
        server.know(ROW, f"@fornada/{model}")
        server.load(ROW)  # which warms it up with its example
        wait_for_zygote(server)
        server.unload(ROW)
        server.load(ROW)
        loaded = private_bytes(server.pid_of(ROW))
        waited(lambda: _parked(server, [ROW]), "it parked", within_s=PARKED_S)
        weights = sum(server.artifact_bytes(artifact["sha256"]) for artifact in toml["artifacts"])
        return Engine(engine, model, weights, loaded, private_bytes(server.pid_of(ROW)))
    finally:
        server.stop()


def _parked(server: Ours, names: list[str]) -> bool:
    return all(server.instance_of(name)["parked"] for name in names)


def _answer_s(server: Ours, name: str, body: bytes) -> float:
    target = server.target(name, body)
    began = time.perf_counter()
    clients.ask(target)
    return time.perf_counter() - began
