"""`fornada backup` of a node that works, and `fornada restore` into a data directory on which none runs."""

import json
import shutil
import threading
from pathlib import Path

from tests.harness.fixtures import StartNode
from tests.http.test_case_40_an_accepted_job_is_done import echoes, submit
from tests.http.test_keys import bearer, create, fornada


def test_a_backup_under_traffic_holds_all_that_was_accepted_before_and_another_node_goes_on_with_it(new_node: StartNode, tmp_path: Path):
    node, copy = new_node().start(), tmp_path / "copy.sqlite"
    model = node.deploy_probe("@backup/probe")["name"]
    waiting = submit(node, model, echoes(20, sleep_s=600.0))
    over = threading.Event()

    def traffic() -> None:
        while not over.is_set():
            submit(node, model, echoes(3))

    sender = threading.Thread(target=traffic)
    sender.start()
    try:
        fornada("backup", copy, "--data-dir", node.data_dir)
        again = fornada("backup", copy, "--data-dir", node.data_dir, code=1)
        assert "is there already" in again.stderr and len(again.stderr.splitlines()) == 1
        refused = fornada("restore", copy, "--data-dir", node.data_dir, code=1)
        assert "is in use by the node" in refused.stderr and len(refused.stderr.splitlines()) == 1
    finally:
        over.set()
        sender.join()
    key = create(node, "local", "admin")
    said = json.loads(fornada("backup", copy, "--force", "--json", "--data-dir", node.data_dir).stdout)
    assert said["keys"] == 1 and str(node.data_dir / "bundles") in said["beside"]
    node.kill()

    other = new_node("other")
    empty = fornada("restore", copy, "--data-dir", other.data_dir)
    assert "missing in" in empty.stderr, "the model's folder is not in the backup, and that is said"
    shutil.copytree(node.data_dir / "bundles", other.data_dir / "bundles", dirs_exist_ok=True)
    assert "is kept as" in fornada("restore", copy, "--data-dir", other.data_dir).stdout
    other.start()
    assert other.fetch("GET", "/api/v1/models").status == 401, "the key is asked for here, too"
    names = [entry["name"] for entry in other.fetch("GET", "/api/v1/models", headers=bearer(key)).json()["models"]]
    assert model in names
    found = other.fetch("GET", f"/api/v1/jobs/{waiting}", headers=bearer(key)).json()
    assert found["status"] in ("queued", "running") and len(found["items"]) == 20
    assert other.fetch("POST", f"/api/v1/jobs/{waiting}/cancel", headers=bearer(key)).status == 200
