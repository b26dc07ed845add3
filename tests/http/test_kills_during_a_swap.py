"""kill -9 of the control plane, a runner or the keeper after each command of a swap: within seconds the ledger is what lives.

The control plane stops after the n-th command (node/fault_port.py), the test kills, and lets what is left go on.
"""

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import LONG, bound, count
from tests.harness.books import living
from tests.harness.client import Closed
from tests.harness.fixtures import StartNode
from tests.harness.node import Node, NodeFailed
from tests.harness.processes import alive, kill
from tests.harness.waiting import Background, until

GIB = 1024**3
SWAP = {"@test/a": 5, "@test/b": 5}
INCOMING, LEAVING = SWAP
"""The second holds the device, the first is asked for."""
CROWD = {"@test/a": 5, "@test/b": 5, "@test/c": 3, "@test/d": 2}
"""Model -> GiB of the device."""
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
ANSWER_S = 20.0
TOLD = {200, 502, 503, None}
"""What a caller may be told when somebody is killed. None: the connection ended with who held it."""
WHOM = ("control plane", "leaving", "incoming", "keeper")


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


class Traffic:
    """Somebody who asks a model again and again, whatever becomes of the node, from the beginning of a `with` block to its end."""

    def __init__(self, node: Node, model: str, background: Background) -> None:
        self._node, self._model, self._background = node, model, background
        self._over = threading.Event()
        self.told: Counter[int | None] = Counter()

    def __enter__(self) -> "Traffic":
        self._asking = self._background.start(self._goes_on)
        return self

    def __exit__(self, *_exc: object) -> None:
        self._over.set()
        self._asking.result()
        assert set(self.told) <= TOLD, self.told

    def _goes_on(self) -> None:
        while not self._over.is_set():
            self.told[ask(self._node, self._model, sleep_s=0.03)] += 1
            self._over.wait(0.02)


def started(new_node: StartNode, models: Mapping[str, int], sleepers: set[str], environ: Mapping[str, str]) -> Node:
    node = new_node(config=CONFIG, environ=environ).start()
    for model, gib in models.items():
        node.deploy_probe(
            model,
            settings={"device_mib": gib * 1024, "sleeps": model in sleepers},
            resources={"device": "cuda", "device_memory": f"{gib}GiB", "memory": "64MiB"},
        )
    return node


def book_is_true(node: Node, models: Mapping[str, int]) -> bool:
    """Nothing is on its way, the node's instances are the processes that live, and the device's book is what the ready ones hold."""
    try:
        device: dict[str, Any] = node.fetch("GET", "/api/v1/devices").json()["devices"][1]
        told = {model: node.model(model) for model in models}
    except (OSError, Closed):
        return False  # between two control planes
    if any(model["state"] in ("pending", "stopping") for model in told.values()):
        return False
    instances = [(name, instance) for name, model in told.items() for instance in model["instances"]]
    ready = [(name, instance["id"]) for name, instance in instances if instance["state"] == "ready"]
    # A successor charges a sleeper in full until it has said that it sleeps; what is used is never more than there is.
    assert device["used_bytes"] <= device["total_bytes"], device
    return (
        {(process.model, process.instance, process.pid) for process in living(node)}
        == {(name, instance["id"], instance["pid"]) for name, instance in instances}
        and {(holder["model"], holder["instance"]) for holder in device["holders"]} == set(ready)
        and device["used_bytes"] == device["reserved_bytes"] == GIB * sum(models[name] for name, _ in ready)
        and device["lingering_bytes"] == device["foreign_bytes"] == 0
    )


def ask(node: Node, model: str, **more: Any) -> int | None:
    """The status; None where the connection ended with the control plane, or nobody was there. Raises TimeoutError for who is told nothing."""
    try:
        answer = node.run(model, {"echo": model, **more}, timeout_s=bound(ANSWER_S))
    except TimeoutError:
        raise
    except (OSError, Closed, NodeFailed):
        return None
    assert answer.status != 200 or answer.result["echo"] == model
    return answer.status


def answers(node: Node, model: str) -> bool:
    return ask(node, model) == 200


def served(node: Node, models: Mapping[str, int]) -> None:
    """All memory can be used again: each model in its turn."""
    for model in models:
        until(partial(answers, node, model), within_s=15, what=f"{model} answers", every_s=0.1)


def come_back(node: Node) -> bool:
    """The swap is over, and those who kept asking have their model again."""
    try:
        answer = node.fetch("GET", f"/api/v1/models/{LEAVING}", timeout_s=1)
    except (OSError, Closed):
        return False
    return bool(answer.json()["state"] == "ready")


def goes_on(node: Node, port: Port) -> bool:
    port.release()
    return node.ready()


def victim(node: Node, whom: str) -> int:
    """The pid of who is to be killed; 0: nobody is there."""
    match whom:
        case "control plane":
            return node.control_pid
        case "keeper":
            return node.keeper_pid
    model = INCOMING if whom == "incoming" else LEAVING
    return next((process.pid for process in reversed(living(node)) if process.model == model), 0)


def killed(node: Node, whom: str, pid: int, release: Port | None = None) -> None:
    """Kills, and waits until there is a node again."""
    control_pid = node.control_pid
    if pid and alive(pid):
        kill(pid)
    if release is not None:
        release.release()
    if whom == "keeper":
        node.wait()
        node.start()
    elif whom == "control plane":
        node.wait_next_control_plane(after_pid=control_pid)


def swap_and_kill(node: Node, port: Port, n: int, whom: str, *, busy: bool) -> tuple[str, bool]:
    """(the command after which it was done, whether there was somebody to kill); empty: the swap was over before."""
    served(node, SWAP)  # b holds the device now
    until(lambda: book_is_true(node, SWAP), within_s=TRUE_S, what="the ledger is what lives")
    with Background() as background:
        if not busy:
            return _swap_and_kill(node, port, n, whom, background, over=lambda: True)
        with Traffic(node, LEAVING, background) as traffic:
            until(lambda: traffic.told[200], within_s=10, what="somebody asks, and is answered")
            done = _swap_and_kill(node, port, n, whom, background, over=lambda: come_back(node))
            before = traffic.told[200]
            until(lambda: traffic.told[200] > before, within_s=10, what="who kept asking is answered again")
        return done


def _swap_and_kill(node: Node, port: Port, n: int, whom: str, background: Background, *, over: Callable[[], bool]) -> tuple[str, bool]:
    port.arm(n)
    asked = background.start(partial(ask, node, INCOMING))
    until(
        lambda: port.reached() is not None or (asked.done() and over()),
        within_s=20,
        what=f"command {n}, or the end of the swap",
        every_s=0.002,
    )
    command = port.reached()
    port.disarm()
    if command is None:
        assert asked.result() == 200
        until(lambda: goes_on(node, port), within_s=10, what="no control plane stands still: one may have been about to")
        return "", False
    try:
        pid = victim(node, whom)
    except BaseException:
        port.release()
        raise
    killed(node, whom, pid, release=port)
    assert asked.result() in TOLD
    until(lambda: book_is_true(node, SWAP), within_s=TRUE_S, what=f"after {command['command']} ({n}) the ledger is what lives")
    return command["command"], bool(pid)


def steps(whom: str, *, sleeps: bool, chance: random.Random) -> Iterator[int]:
    """All of them in the long run, in the usual one as many as it takes for a few kills: of who has to be started first, after its start."""
    some = range(12, 20) if whom == "incoming" and not sleeps else range(1, 13)
    yield from range(1, MOST_COMMANDS) if LONG else chance.sample(some, len(some))


@pytest.mark.slow
@pytest.mark.timeout(bound(2400))
@pytest.mark.parametrize("sleeps", [False, True], ids=["stops", "sleeps"])
@pytest.mark.parametrize("whom", WHOM)
def test_a_kill_after_any_command_of_a_swap_leaves_a_true_ledger(
    new_node: StartNode, tmp_path: Path, whom: str, sleeps: bool, chance: random.Random
):
    port = Port(tmp_path / "port")
    node = started(new_node, SWAP, set(SWAP) if sleeps else set(), port.environ)
    enough = count(1 if whom == "keeper" else 2, long=MOST_COMMANDS)
    for busy in (False, True):
        hit, over = [], False
        for n in steps(whom, sleeps=sleeps, chance=chance):
            command, there = swap_and_kill(node, port, n, whom, busy=busy)
            hit += [command] * there
            over = not command
            if (over and LONG) or len(hit) == enough:
                break
        assert hit, "somebody was there to be killed"
        assert over or not LONG, "every command of the swap had its turn"
        print(f"{len(hit)} kills of the {whom}, {'while somebody keeps asking' if busy else 'with one request'}: {hit}")
    assert node.metrics().total("fornada_model_loads_total", outcome="failed") == 0 or whom in ("incoming", "leaving"), (
        "a load fails where its process was killed"
    )
    assert node.stop() == 0


@pytest.mark.slow
@pytest.mark.timeout(bound(1200))
def test_kills_at_random_moments_of_random_traffic_leave_a_true_ledger(new_node: StartNode, chance: random.Random):
    node = started(new_node, CROWD, {"@test/a", "@test/c"}, {})
    served(node, CROWD)
    whom = ["control plane", "keeper", "runner", "runner"]
    for number in range(count(4, long=80)):
        if number % len(whom) == 0:
            chance.shuffle(whom)
        with Background() as background, Traffic(node, chance.choice(list(CROWD)), background):
            asked = [background.start(partial(ask, node, model)) for model in chance.choices(list(CROWD), k=8)]
            time.sleep(chance.uniform(0.0, 0.6))  # the case itself: a random moment
            target = whom[number % len(whom)]
            runners = [process.pid for process in living(node)] or [0]
            killed(node, target, {"control plane": node.control_pid, "keeper": node.keeper_pid}.get(target) or chance.choice(runners))
            assert {each.result() for each in asked} <= TOLD
            until(lambda: book_is_true(node, CROWD), within_s=TRUE_S, what=f"after the {target}'s end the ledger is what lives")
        served(node, CROWD)
    assert node.stop() == 0
