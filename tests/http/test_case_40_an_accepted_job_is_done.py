"""Case 40: what was accepted as a job is done, whatever is killed meanwhile: each item once, in its place, under its reference."""

import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.bounds import bound, count
from tests.harness.fixtures import Probe, StartNode
from tests.harness.node import Node, run_path
from tests.harness.processes import kill
from tests.harness.waiting import until

ITEMS = 100
ROUNDS = count(5, long=50)
KILLS = 6


def submit(node: Node, model: str, requests: list[dict[str, Any]], *, key: str = "") -> str:
    headers = {"idempotency-key": key} if key else None
    answer = node.fetch("POST", run_path(model) + "?queueRequest=true", payload={"requests": requests}, headers=headers)
    assert key or answer.result["status"] == "queued"
    return str(answer.result["request_id"])


def job(node: Node, id: str) -> dict[str, Any]:
    answer = node.fetch("GET", f"/api/v1/jobs/{id}")
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json()
    return found


def poll(node: Node, model: str, id: str) -> dict[str, Any]:
    found: dict[str, Any] = node.fetch("POST", run_path(model), payload={"request_id": id}).result
    return found


def in_flight(node: Node, model: str) -> int:
    return sum(instance["in_flight"] for instance in node.model(model)["instances"])


def echoes(total: int, **more: Any) -> list[dict[str, Any]]:
    return [{"echo": number, "external_reference": f"ref-{number}", **more} for number in range(total)]


def told(node: Node, id: str) -> dict[str, Any]:
    """The job, {} while the node is being killed."""
    try:
        return job(node, id)
    except (OSError, AssertionError):
        return {}


def done(node: Node, id: str) -> Callable[[], bool]:
    return lambda: told(node, id).get("status", "queued") not in ("queued", "running")


def assert_each_is_answered_in_its_place(node: Node, model: str, id: str, total: int) -> list[dict[str, Any]]:
    responses: list[dict[str, Any]] = poll(node, model, id)["responses"]
    assert [each["id"] for each in responses] == list(range(total))
    for number, each in enumerate(responses):
        assert each["success"] is True, each
        assert (each["result"]["echo"], each["external_reference"]) == (number, f"ref-{number}")
    return responses


def test_a_job_goes_from_queued_over_running_to_completed(node: Node, probe: Probe):
    model = probe()
    id = submit(node, model, echoes(10, sleep_s=0.05))
    seen_statuses: list[str] = []

    def ended() -> bool:
        status = job(node, id)["status"]
        if not seen_statuses or seen_statuses[-1] != status:
            seen_statuses.append(status)
        return bool(status == "completed")

    until(ended, within_s=30, what="the job is completed", every_s=0.005)
    assert seen_statuses in (["queued", "running", "completed"], ["running", "completed"])
    assert {item["status"] for item in job(node, id)["items"]} == {"completed"}
    responses = assert_each_is_answered_in_its_place(node, model, id, 10)
    assert len({each["result"]["seq"] for each in responses}) == 10, "an item was run twice though nobody died"


def test_a_bad_item_fails_alone(node: Node, probe: Probe):
    model = probe()
    id = submit(node, model, [{"echo": 0}, {"bad": True}, {"echo": 2}])
    until(done(node, id), within_s=30, what="the job has ended")
    responses = poll(node, model, id)["responses"]
    assert [each["success"] for each in responses] == [True, False, True]
    assert "error" in responses[1] and "result" not in responses[1]


def test_cancel_works_in_each_state_and_ends_the_work(node: Node, probe: Probe):
    model = probe()
    id = submit(node, model, echoes(5, sleep_s=60))
    until(lambda: job(node, id)["counts"].get("running"), within_s=20, what="an item runs")
    until(lambda: in_flight(node, model) == 1, within_s=20, what="the model works on it")
    ended = node.fetch("POST", f"/api/v1/jobs/{id}/cancel").json()
    assert ended["status"] == "cancelled" and {item["status"] for item in ended["items"]} == {"cancelled"}
    until(lambda: in_flight(node, model) == 0, within_s=10, what="the work has ended")
    assert node.fetch("POST", f"/api/v1/jobs/{id}/cancel").json()["status"] == "cancelled"
    finished = submit(node, model, echoes(2))
    until(done(node, finished), within_s=30, what="the job has ended")
    assert node.fetch("POST", f"/api/v1/jobs/{finished}/cancel").json()["status"] == "completed"
    assert node.fetch("POST", "/api/v1/jobs/none/cancel").status == 404


def test_the_same_key_is_the_same_job(node: Node, probe: Probe):
    model = probe()
    first = submit(node, model, echoes(2), key="case-40")
    assert submit(node, model, echoes(2), key="case-40") == first
    refused = node.fetch("POST", run_path(model) + "?queueRequest=true", payload={"requests": [{}]}, headers={"idempotency-key": "case-40"})
    assert (refused.status, refused.code) == (409, 5011)


def test_an_item_that_kills_its_runner_each_time_is_given_up_and_the_others_are_done(node: Node, probe: Probe):
    model = probe()
    id = submit(node, model, [{"die": True, "external_reference": "bad"}, {"echo": 1}])
    until(done(node, id), within_s=60, what="the job has ended")
    responses = poll(node, model, id)["responses"]
    assert [(each["success"], each["external_reference"]) for each in responses] == [(False, "bad"), (True, None)]


def test_a_stop_in_the_middle_leaves_the_rest_to_the_next_start(new_node: StartNode):
    node = new_node().start()
    node.deploy_probe("@test/a")
    id = submit(node, "@test/a", echoes(40, sleep_s=0.1))
    until(lambda: job(node, id)["counts"].get("completed", 0) >= 5, within_s=30, what="some are done")
    began = time.monotonic()
    assert node.stop() == 0
    assert time.monotonic() - began < 10, "the stop waited for the job"
    node.start()
    before = job(node, id)["counts"]
    assert before.get("completed", 0) >= 5 and job(node, id)["status"] == "running"
    until(done(node, id), within_s=60, what="the job is done after the restart")
    assert_each_is_answered_in_its_place(node, "@test/a", id, 40)
    assert node.stop() == 0


@pytest.mark.timeout(bound(300))
@pytest.mark.parametrize("round", range(ROUNDS))
def test_each_of_a_hundred_items_is_done_once_whatever_is_killed(new_node: StartNode, round: int):
    chance = random.Random(f"case 40, {round}")
    node = new_node().start()
    node.deploy_probe("@test/a", serving={"concurrency": 4})
    id = submit(node, "@test/a", echoes(ITEMS, sleep_s=0.1), key="once")
    for number in range(KILLS):
        share = (number + chance.random()) * ITEMS / (KILLS + 1)
        until(partial(far, node, id, share), within_s=60, what=f"{share:.0f} items are done")
        strike(node, chance)
    until(done(node, id), within_s=120, what="the job is done")
    assert job(node, id)["status"] == "completed"
    assert submit(node, "@test/a", echoes(ITEMS, sleep_s=0.1), key="once") == id
    assert_each_is_answered_in_its_place(node, "@test/a", id, ITEMS)
    assert node.stop() == 0


def far(node: Node, id: str, share: float) -> bool:
    return bool(told(node, id).get("counts", {}).get("completed", 0) >= share)


def strike(node: Node, chance: random.Random) -> None:
    """Kills one of the three kinds of processes, and sees to it that the node lives on."""
    whom = chance.choice(["runner", "control plane", "keeper"])
    if whom == "runner":
        pids = [each["pid"] for each in node.model("@test/a")["instances"] if each["pid"]]
        if pids:
            kill(pids[0])
    elif whom == "control plane":
        pid = node.control_pid
        kill(pid)
        node.wait_next_control_plane(after_pid=pid)
    else:
        kill(node.keeper_pid)
        node.wait()
        node.start()
