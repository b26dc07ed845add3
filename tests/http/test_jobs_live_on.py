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
    submit,
)
from tests.http.test_upgrade import checkout, upgrade, version
from tests.security.test_data_directory import small_disk

ITEMS = 60


def test_a_job_goes_on_with_the_next_control_plane(new_node: StartNode, tmp_path: Path):
    node = new_node().start()
    node.deploy_probe("@test/a", serving={"concurrency": 2})
    id = submit(node, "@test/a", echoes(ITEMS, sleep_s=0.2))
    until(lambda: far(node, id, 5), within_s=30, what="some are done")
    done_upgrade = upgrade(node, checkout(tmp_path, "9.9.9"))
    assert done_upgrade.returncode == 0, done_upgrade.stderr
    assert version(node) == "9.9.9"
    assert job(node, id)["status"] == "running"
    later = submit(node, "@test/a", echoes(3))
    for each, total in ((id, ITEMS), (later, 3)):
        until(done(node, each), within_s=60, what="the job is done")
        assert_each_is_answered_in_its_place(node, "@test/a", each, total)
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
