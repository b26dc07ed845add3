"""Case 5: the next load begins when the memory of the one before is back by the device's own counter, not when its process is gone."""

import json
import time
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import pytest

from tests.bounds import bound, count
from tests.harness.fixtures import StartNode
from tests.harness.node import Node
from tests.harness.waiting import Background

MIB = 1024 * 1024
DELAY_S = count(5, long=30) / 10
ROUNDS = count(2, long=20)
TOTAL_MIB = 1000
MIBS = {"@test/a": 700, "@test/b": 600}
CONFIG = f"""
[node]
drain_s = 5
kill_s = 2
[[devices.fake]]
total = "{TOTAL_MIB}MiB"
release_delay_ms = {DELAY_S * 1000:.0f}
"""
CLOCK_S = 0.02
"""By so much the node's instants and those of the wall clock may be read apart."""


class Sample(NamedTuple):
    """What the device said, and when it was asked."""

    at: float
    used: int


class Swap(NamedTuple):
    """What was seen of one request for a model whose memory another one held."""

    coming: str
    going: str
    samples: list[Sample]


def card(node: Node) -> dict[str, Any]:
    answer = node.fetch("GET", "/api/v1/devices")
    found: dict[str, Any] = next(device for device in answer.json()["devices"] if device["id"] == "cuda:0")
    return found


def swap(node: Node, coming: str, going: str) -> Swap:
    samples = []
    with Background() as background:
        asked = background.start(partial(node.ask, coming, {"echo": coming}, timeout_s=60))
        while not asked.done():
            at, seen = time.time(), card(node)
            samples.append(Sample(at, seen["used_bytes"]))
            assert seen["used_bytes"] <= seen["total_bytes"]
            assert seen["reserved_bytes"] + seen["lingering_bytes"] <= seen["total_bytes"], "planned on bytes that aren't back"
            time.sleep(0.02)
        assert asked.result()["echo"] == coming
    return Swap(coming, going, samples)


def begins(node: Node, model: str) -> list[float]:
    """When each of its loads and wakes began, by its own word."""
    return [line["time"] for line in node.probe_log(model) if line["event"] in ("load", "wake")]


def goes(node: Node, model: str, lines: list[dict[str, Any]]) -> list[float]:
    """When each of its processes ended, by the node's log, or slept, by the model's own word."""
    ended = [
        datetime.fromisoformat(line["time"]).timestamp()
        for line in lines
        if (line["event"], line.get("model")) == ("instance.ended", model)
    ]
    return sorted([*ended, *(line["time"] for line in node.probe_log(model) if line["event"] == "asleep")])


@pytest.mark.slow
@pytest.mark.timeout(bound(400))
@pytest.mark.parametrize("sleeps", [False, True], ids=["stops", "sleeps"])
def test_two_models_that_don_t_fit_together_take_turns_without_running_out_of_memory(new_node: StartNode, sleeps: bool):
    node = new_node(config=CONFIG).start()
    for name, mib in MIBS.items():
        # What loads for long is put to sleep rather than stopped, where it can be.
        node.deploy_probe(
            name, settings={"device_mib": mib, "sleeps": sleeps, "load_s": 0.2}, resources={"device": "cuda", "device_memory": f"{mib}MiB"}
        )
    node.ask("@test/a", {"echo": "first"})
    swaps = [swap(node, *names) for _ in range(ROUNDS) for names in (("@test/b", "@test/a"), ("@test/a", "@test/b"))]
    lines = [json.loads(line) for line in (node.data_dir / "logs/node.log").read_text().splitlines()]
    begun = {name: iter(begins(node, name)) for name in MIBS}
    gone = {name: iter(goes(node, name, lines)) for name in MIBS}
    next(begun["@test/a"])
    for seen in swaps:
        began, went = next(begun[seen.coming]), next(gone[seen.going])
        assert began - went >= DELAY_S - CLOCK_S, f"{seen.coming} began {began - went:.3f} s after {seen.going} had gone"
        while_it_came = {sample.used // MIB for sample in seen.samples if sample.at > began}
        assert while_it_came <= {0, MIBS[seen.coming]}, "others' bytes were there still"
    for name in MIBS:
        noted = [line["event"] for line in node.probe_log(name)]
        assert noted.count("load") == noted.count("loaded"), "none was loaded again for want of memory"
        assert bool(noted.count("asleep")) == sleeps, noted
    assert node.metrics().total("fornada_model_loads_total", outcome="failed") == 0
    if not sleeps:
        told = [line for line in lines if line["event"] == "room.waits" and line["lingering_bytes"]]
        assert len(told) == len(swaps), "the log has each wait for bytes once"
        for line, seen in zip(told, swaps, strict=True):
            needs, held = MIBS[seen.coming], MIBS[seen.going]
            assert line["lingering_bytes"] == {"cuda:0": held * MIB}
            assert f"cuda:0 has {TOTAL_MIB - held} MiB free of {needs} MiB needed" in line["reason"], "both numbers"
            assert f"{held} MiB of ended processes are on their way back" in line["reason"]
    assert node.stop() == 0
