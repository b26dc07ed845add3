"""Usage on a real node: what runners have finished, to the request, by account, key and model, whatever is killed."""

import json
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.bounds import count
from tests.harness.bundles import write_probe
from tests.harness.client import Closed
from tests.harness.fixtures import StartNode
from tests.harness.node import Node, run_path
from tests.harness.processes import kill
from tests.harness.waiting import until
from tests.http.test_keys import bearer, create, fornada

Key = dict[str, Any] | None
CALLERS = 3


def usage(node: Node, key: Key = None) -> list[dict[str, Any]]:
    answer = node.fetch("GET", "/api/v1/usage", headers=bearer(key) if key else {})
    assert answer.status == 200, answer
    rows: list[dict[str, Any]] = answer.json()["usage"]
    return rows


def counted(node: Node, model: str) -> int:
    return sum(row["requests"] for row in usage(node) if row["model"] == model)


def test_each_request_a_runner_finishes_is_counted_for_its_key_with_its_price(own_node: Node, tmp_path: Path):
    node = own_node
    admin, user, other = create(node, "ops", "admin"), create(node, "team", "user"), create(node, "rivals", "user")
    folder = write_probe(tmp_path / "priced", "@usage/priced")
    toml = folder / "model.toml"
    shared = toml.read_text().replace("[python]", 'visibility = "node"\n\n[python]', 1)
    toml.write_text(f"{shared}\n[price]\nrequest = 2.5\n")
    environ = {"FORNADA_URL": node.url, "FORNADA_TOKEN": admin["key"], "FORNADA_ACCOUNT": "ops"}
    fornada("deploy", folder, "--wait", **environ)

    def run(key: dict[str, Any], account: str, payload: dict[str, Any]) -> int:
        return node.fetch("POST", f"/client/v4/accounts/{account}/ai/run/@usage/priced", payload=payload, headers=bearer(key)).status

    for payload, status in (({"echo": 1}, 200), ({"sleep_s": 0.2}, 200), ({"bad": True}, 400), ({"steps": 3, "stream": True}, 200)):
        assert run(user, "team", payload) == status
    assert run(user, "team", {"die": True}) == 502, "not finished, so not counted"
    assert run(other, "rivals", {"echo": 1}) == 200
    (mine,) = usage(node, user)
    assert (mine["account"], mine["key"], mine["model"], mine["requests"], mine["neurons"]) == (
        "team",
        user["id"],
        "@usage/priced",
        4,
        10.0,
    )
    assert mine["device_seconds"] >= 0.2
    assert {row["account"] for row in usage(node, admin)} == {"team", "rivals"}
    table = fornada("usage", **environ).stdout
    assert "rivals" in table and user["id"] in table
    assert json.loads(fornada("usage", "--json", **environ).stdout)["usage"] == usage(node, admin)
    small = create(node, "team", "user", "--neurons", 5, "--rpm", 100)
    assert [run(small, "team", {"echo": 1}) for _ in range(3)] == [200, 200, 429], "2.5 each"
    before = node.control_pid
    kill(before)
    node.wait_next_control_plane(after_pid=before)
    assert run(small, "team", {"echo": 1}) == 429, "used up is used up"


def _reached(answered: Callable[[], int], wanted: int, begun: float) -> bool:
    return answered() >= wanted and time.monotonic() - begun >= count(0, long=15)


@contextmanager
def traffic(node: Node, model: str) -> Iterator[tuple[Callable[[], int], Callable[[], int]]]:
    """Callers that ask on and on, whatever becomes of it. Yields how many of their requests were answered with 200,
    and how many may have been run at most."""
    over = threading.Event()
    answered = [0] * CALLERS
    sent = [0] * CALLERS

    def ask(place: int) -> None:
        while not over.is_set():
            try:
                with node.connect(timeout_s=20) as connection:
                    while not over.is_set():
                        sent[place] += 1
                        connection.send_request("POST", run_path(model), b'{"echo": "x"}', {"content-type": "application/json"})
                        status = connection.read_response().status
                        answered[place] += status == 200
                        sent[place] -= status == 503  # refused before any runner saw it
            except (OSError, Closed):
                over.wait(0.01)

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(CALLERS)]
    for thread in threads:
        thread.start()
    try:
        yield (lambda: sum(answered)), (lambda: sum(sent))
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_kill_9_of_the_control_plane_loses_no_request_and_counts_none_twice(own_node: Node):
    node, model = own_node, "@usage/control"
    node.deploy_probe(model, serving={"concurrency": 2})
    node.load(model)
    (runner,) = node.pids(model)
    with traffic(node, model) as (answered, _):
        for _ in range(count(4, long=20)):
            wanted = answered() + random.randint(20, 200)
            until(partial(_reached, answered, wanted, time.monotonic()), within_s=60, what="requests are answered")
            before = node.control_pid
            kill(before)
            node.wait_next_control_plane(after_pid=before, within_s=30)
    assert node.pids(model) == [runner], "it has seen all of it"
    last = node.ask(model, {"echo": "last"})
    # The probe numbers what it is given; what it was given is finished, since nothing of it waits.
    until(lambda: counted(node, model) >= last["seq"], within_s=10, what="all is counted")
    print(f"finished {last['seq']}, answered {answered()}, counted {counted(node, model)}")
    assert counted(node, model) == last["seq"] > answered()


def test_kill_9_of_runners_and_of_the_keeper_loses_nothing_that_was_answered_and_invents_nothing(new_node: StartNode):
    node, model = new_node().start(), "@usage/all"
    node.deploy_probe(model)
    node.load(model)
    kills = count(3, long=15)
    least = most = 0
    for number in range(kills):
        with traffic(node, model) as (answered, sent):
            until(lambda: answered() >= 50, within_s=60, what="requests are answered")
            victim = random.choice(["runner", "both", "node"]) if number else "node"
            if victim == "both":
                kill(node.control_pid)
            if victim == "node":
                node.kill()
            else:
                until(lambda: node.ready() and node.pids(model), within_s=30, what="the model is there again")
                kill(node.pids(model)[0])
        least, most = least + answered(), most + sent()
        if victim == "node":
            node.start()
    # Lines that the probe had written to its pipe are gone with a keeper that is killed: the callers know the truth here.
    found = counted(node, model)
    assert least <= found, "what was answered is counted"
    assert found <= most, "and nothing that was never asked"
    node.process.send_signal(signal.SIGTERM)
    assert node.wait() == 0
