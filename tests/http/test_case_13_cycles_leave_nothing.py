"""Case 13: memory doesn't creep over loads and unloads, failed ones neither: an unload is the end of a process."""

import os
from pathlib import Path

import pytest

from fornada.app.isolation import FIRST_UID, UIDS
from tests.bounds import bound, count
from tests.harness.fixtures import StartNode
from tests.harness.node import Node
from tests.harness.processes import descriptors, resident_bytes
from tests.harness.walls import at_rest, no_more_open, uid

CYCLES = count(32, long=200)
FAILING = CYCLES // 4
FIRST = count(16, long=40)
"""Until then pools, caches and logs come to their size."""
GROWTH_MOST = 1.05
MIB = 1024 * 1024
GOOD, BAD = "@test/good", "@test/bad"
CONFIG = """
[node]
drain_s = 5
kill_s = 2
[[devices.fake]]
total = "1GiB"
"""


def turn(node: Node, number: int) -> None:
    if number % 4 == 3:
        assert node.act(BAD, "load").status != 200
        assert node.act(BAD, "reset").status == 200
        node.unload(BAD)
    else:
        node.load(GOOD)
        assert node.ask(GOOD, {"echo": number, "alloc_mib": 8})["echo"] == number
        node.unload(GOOD)


def booked(node: Node) -> float:
    return node.metrics().total("fornada_device_bytes", device="cuda:0", kind="used")


def loads(node: Node, model: str, outcome: str) -> float:
    return node.metrics().total("fornada_model_loads_total", model=model, outcome=outcome)


def models_files(uids: range) -> list[str]:
    """What the node's models left where everybody may write."""
    paths = [path for folder in ("/dev/shm", "/tmp") for path in Path(folder).iterdir()]
    return [str(path) for path in paths if path.lstat().st_uid in uids]


def uids_beside(own: int) -> range:
    """Of all models of the node of which one has this uid. Empty where they have none of their own: their files can't be told apart."""
    first = own - (own - FIRST_UID) % UIDS
    return range(first, first + UIDS) if own >= FIRST_UID else range(0)


@pytest.mark.slow
@pytest.mark.timeout(bound(300))
def test_two_hundred_cycles_with_failing_loads_among_them_leave_nothing(new_node: StartNode, tmp_path: Path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    node = new_node(config=CONFIG, environ={"TMPDIR": str(temporary)}).start()
    on_device = {"device": "cuda:0", "device_memory": "100MiB"}
    node.deploy_probe(GOOD, settings={"device_mib": 100, "hold_mib": 32}, resources=on_device)
    node.deploy_probe(BAD, settings={"device_mib": 100, "hold_mib": 32, "fail_load_n": "inf"}, resources=on_device)
    node.load(GOOD)
    assert booked(node) == 100 * MIB, "the device feels what is loaded"
    uids = uids_beside(uid(node.pids(GOOD)[0]))
    node.unload(GOOD)
    for number in range(FIRST):
        turn(node, number)
    before, rss, open_files = at_rest(node.data_dir, node.keeper_pid), resident_bytes(node.control_pid), descriptors(node.control_pid)
    keeper_rss = resident_bytes(node.keeper_pid)
    loaded, failed = loads(node, GOOD, "ok"), loads(node, BAD, "failed")
    for number in range(CYCLES):
        turn(node, number)
        assert booked(node) == 0
    assert loads(node, GOOD, "ok") - loaded == CYCLES - FAILING
    assert loads(node, BAD, "failed") - failed == FAILING, "each failing load was a load, which held its memory when it failed"
    after = at_rest(node.data_dir, node.keeper_pid)
    assert resident_bytes(node.control_pid) < rss * GROWTH_MOST and resident_bytes(node.keeper_pid) < keeper_rss * GROWTH_MOST
    assert descriptors(node.control_pid) <= open_files
    no_more_open(before, node.keeper_pid)
    assert len(after.groups) == len(before.groups) and after.mounts <= before.mounts and not after.scratch
    assert os.listdir(temporary) == []
    assert models_files(uids) == []
    assert node.stop() == 0
