"""kill -9 of the control plane, a runner or the keeper after each command of a swap: within seconds the ledger is what lives.

The control plane stops after the n-th command (node/fault_port.py), the test kills, and lets what is left go on.
"""

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import LONG, bound, count
from tests.harness.client import Closed
from tests.harness.fixtures import StartNode
from tests.harness.node import Node
from tests.harness.waiting import Background, until

GIB = 1024**3
BYTES = 5 * GIB
MODELS = INCOMING, LEAVING = "@test/a", "@test/b"
"""The second holds the device, the first is asked for."""
CONFIG = """
[node]
drain_s = 5
kill_s = 1
[devices]
fake = [{ total = "8GiB", bandwidth = "200GiB/s" }]
"""
MOST_COMMANDS = 60
TRUE_S = 5.0
"""How long a book may be wrong after a kill."""


class Port:
    """The test's end of the fault port."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.environ = {"FORNADA_TEST_FAULT_PORT": str(folder)}
        self._arm, self._reached = folder / "arm", folder / "reached"

    def arm(self, commands: int) -> None:
        self._arm.write_text(str(commands))

    def reached(self) -> dict[str, str] | None:
        return json.loads(self._reached.read_text()) if self._reached.exists() else None

    def disarm(self) -> None:
        """No control plane stops any more; the one that has goes on at `release`."""
        self._arm.unlink(missing_ok=True)

    def release(self) -> None:
        self._reached.unlink(missing_ok=True)


def started(new_node: StartNode, port: Port, *, sleeps: bool) -> Node:
    node = new_node(config=CONFIG, environ=port.environ).start()
    for model in MODELS:
        node.deploy_probe(
            model,
            settings={"device_mib": BYTES // 1024**2, "sleeps": sleeps},
            resources={"device": "cuda", "device_memory": "5GiB", "memory": "64MiB"},
        )
    return node


def card(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = node.fetch("GET", "/api/v1/devices").json()["devices"][1]
    return found


def book_is_true(node: Node) -> bool:
    """What the ledger says of the device is what living processes hold of it, and each entry is a living instance's."""
    try:
        device = card(node)
        instances = [instance for model in MODELS for instance in node.model(model)["instances"]]
        states = {model: node.state(model) for model in MODELS}
    except (OSError, Closed):
        return False  # between two control planes
    if any(state in ("pending", "stopping") for state in states.values()):
        return False
    living = {instance["id"] for instance in instances if os.path.exists(f"/proc/{instance['pid']}")}
    ready = [instance for instance in instances if instance["state"] == "ready"]
    # A successor charges a sleeper in full until it has said that it sleeps; what is used is never more than there is.
    assert device["used_bytes"] <= device["total_bytes"], device
    held = {holder["instance"] for holder in device["holders"]}
    return (
        len(living) == len(instances)
        and held == {instance["id"] for instance in ready}
        and device["used_bytes"] == device["reserved_bytes"] == BYTES * len(ready)
        and device["lingering_bytes"] == device["foreign_bytes"] == 0
    )


def ask(node: Node, model: str) -> int | None:
    """The status; None where the connection ended with the control plane."""
    try:
        return node.run(model, {"echo": model}, timeout_s=bound(20)).status
    except (OSError, Closed):
        return None


def answers(node: Node, model: str) -> bool:
    return ask(node, model) == 200


def served(node: Node) -> None:
    """All memory can be used again: each model in its turn."""
    for model in MODELS:
        until(partial(answers, node, model), within_s=15, what=f"{model} answers", every_s=0.1)


def runner_of(node: Node, model: str) -> int:
    """Pid of the process that was started last for the model, from the log: nobody answers just now. 0: it has ended."""
    lines = map(json.loads, (node.data_dir / "logs/node.log").read_text().splitlines())
    pids = [int(line["pid"]) for line in lines if line["event"] == "instance.spawned" and line["model"] == model]
    alive = {process.pid for process in node.tree()}
    return pids[-1] if pids and pids[-1] in alive else 0


def swap_and_kill(node: Node, port: Port, n: int, whom: str) -> tuple[str, bool]:
    """(the command after which it was done, whether there was somebody to kill); empty: the swap was over before."""
    served(node)  # b holds the device now
    until(lambda: book_is_true(node), within_s=TRUE_S, what="the ledger is what lives")
    control_pid = node.control_pid
    with Background() as background:
        port.arm(n)
        asked = background.start(partial(ask, node, INCOMING))
        until(lambda: port.reached() is not None or asked.done(), within_s=20, what=f"command {n}, or the end of the swap", every_s=0.002)
        command = port.reached()
        port.disarm()
        if command is None:
            assert asked.result() == 200
            return "", False
        try:
            pid = {"control plane": control_pid, "keeper": node.keeper_pid}.get(whom) or runner_of(
                node, INCOMING if whom == "incoming" else LEAVING
            )
            if pid:
                os.kill(pid, signal.SIGKILL)
        finally:
            port.release()
        if whom == "keeper":
            node.wait()
            node.start()
        elif whom == "control plane":
            node.wait_next_control_plane(after_pid=control_pid)
        asked.result()  # whatever it was told, it was told something
    until(lambda: book_is_true(node), within_s=TRUE_S, what=f"after {command['command']} ({n}) the ledger is what lives")
    served(node)
    return command["command"], bool(pid)


def steps(whom: str, *, sleeps: bool) -> Iterator[int]:
    """All of them in the long run, in the usual one a few: of who has to be started first, those after its start."""
    some = range(12, 17) if whom == "incoming" and not sleeps else range(1, 13)
    yield from range(1, MOST_COMMANDS) if LONG else sorted(random.Random(f"{whom} {sleeps}").sample(some, 2 if whom == "keeper" else 4))


@pytest.mark.slow
@pytest.mark.timeout(bound(1200))
@pytest.mark.parametrize("sleeps", [False, True], ids=["stops", "sleeps"])
@pytest.mark.parametrize("whom", ["control plane", "leaving", "incoming", "keeper"])
def test_a_kill_after_any_command_of_a_swap_leaves_a_true_ledger(new_node: StartNode, tmp_path: Path, whom: str, sleeps: bool):
    port = Port(tmp_path / "port")
    node = started(new_node, port, sleeps=sleeps)
    killed, over = [], False
    for n in steps(whom, sleeps=sleeps):
        command, there = swap_and_kill(node, port, n, whom)
        over = not command
        if over:
            break
        killed += [command] * there
    assert killed, "somebody was there to be killed"
    assert over or not LONG, "every command of the swap had its turn"
    assert node.metrics().total("fornada_model_loads_total", outcome="failed") == 0 or whom == "incoming", (
        "a load fails where its process was killed"
    )
    print(f"{len(killed)} kills of the {whom}: {killed}")
    assert node.stop() == 0


@pytest.mark.slow
@pytest.mark.timeout(bound(600))
def test_kills_at_random_moments_of_random_traffic_leave_a_true_ledger(new_node: StartNode, tmp_path: Path):
    chance = random.Random(8250)
    port = Port(tmp_path / "port")
    node = started(new_node, port, sleeps=True)
    for _ in range(count(4, long=60)):
        with Background() as background:
            asked = [background.start(partial(ask, node, chance.choice(MODELS))) for _ in range(6)]
            time.sleep(chance.uniform(0.0, 0.6))
            control_pid = node.control_pid
            pids = [pid for model in MODELS for pid in node.pids(model)]
            target = chance.choice([control_pid, *pids])
            if os.path.exists(f"/proc/{target}"):
                os.kill(target, signal.SIGKILL)
            if target == control_pid:
                node.wait_next_control_plane(after_pid=control_pid)
            for each in asked:
                each.result()
        until(lambda: book_is_true(node), within_s=TRUE_S, what="the ledger is what lives")
        served(node)
    assert node.stop() == 0
