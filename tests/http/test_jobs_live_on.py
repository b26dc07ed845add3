"""A job goes on under `fornada serve --upgrade`, and on a full disk: what was accepted is done, each item once."""

import contextlib
from pathlib import Path

from tests.harness.fixtures import StartNode
from tests.harness.node import run_path
from tests.harness.waiting import until
from tests.http.test_case_40_an_accepted_job_is_done import (
    assert_each_is_answered_in_its_place,
    done,
    echoes,
    far,
    job,
    poll,
    submit,
)
from tests.http.test_upgrade import checkout, upgrade, version
from tests.security.test_data_directory import small_disk

ITEMS = 60
LONG = 2000
"""Many more than are done while a machine is busy with an upgrade."""


def test_a_job_goes_on_with_the_next_control_plane(new_node: StartNode, tmp_path: Path):
    node = new_node().start()
    node.deploy_probe("@test/a", serving={"concurrency": 2})
    source = checkout(tmp_path, "9.9.9")
    id = submit(node, "@test/a", echoes(LONG, sleep_s=0.2))
    until(lambda: far(node, id, 5), within_s=30, what="some are done")
    upgraded = upgrade(node, source)
    assert upgraded.returncode == 0, upgraded.stderr
    assert version(node) == "9.9.9"
    before = job(node, id)
    assert before["status"] == "running" and before["counts"]["completed"] >= 5
    until(lambda: far(node, id, before["counts"]["completed"] + 20), within_s=60, what="the next one goes on with it")
    node.fetch("POST", f"/api/v1/jobs/{id}/cancel")
    answered = poll(node, "@test/a", id)["responses"]
    assert len(answered) > before["counts"]["completed"]
    assert [(each["result"]["echo"], each["external_reference"]) for each in answered] == [
        (each["id"], f"ref-{each['id']}") for each in answered
    ]
    later = submit(node, "@test/a", echoes(3))
    until(done(node, later), within_s=60, what="a job of the new one is done")
    assert_each_is_answered_in_its_place(node, "@test/a", later, 3)
    assert node.stop() == 0


def test_a_full_disk_refuses_new_jobs_with_the_reason_and_keeps_accepted_ones(new_node: StartNode):
    node = small_disk(new_node, "48m")
    node.deploy_probe("@test/a")
    id = submit(node, "@test/a", echoes(ITEMS, sleep_s=0.1))
    until(lambda: far(node, id, 5), within_s=30, what="some are done")
    ballast = node.files / "scratch" / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    refused = node.fetch("POST", run_path("@test/a") + "?queueRequest=true", payload={"requests": [{"echo": "x" * 100_000}] * 20})
    assert (refused.status, refused.code) == (507, 3107), refused.body
    assert str(node.data_dir) in refused.message and "retry-after" in refused.headers
    before = job(node, id)
    assert before["status"] == "running" and len(before["items"]) == ITEMS
    ballast.unlink()
    until(done(node, id), within_s=60, what="the job is done once there is room again")
    assert_each_is_answered_in_its_place(node, "@test/a", id, ITEMS)
    later = submit(node, "@test/a", echoes(3))
    until(done(node, later), within_s=30, what="new jobs are taken again")
    assert node.stop() == 0
