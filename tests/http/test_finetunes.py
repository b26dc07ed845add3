"""Fine-tunes on a real node: what was answered is there after kill -9, and an upload that was cut off leaves what was there before."""

import contextlib
import itertools
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fornada.core.finetunes import CONFIG, WEIGHTS, base_folder
from tests.bounds import bound, count
from tests.harness.adapters import config, form, weights
from tests.harness.client import Closed
from tests.harness.node import Node, NodeFailed
from tests.harness.waiting import until

BASE = "/client/v4/accounts/local/ai/finetunes"
MODEL = "@test/chat"
WIDTH = 65536
"""4 MiB an upload: long enough to be killed in."""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    try:
        yield node.start()
    finally:
        node.destroy()


def create(node: Node) -> str:
    answer = node.fetch("POST", BASE, payload={"model": MODEL, "name": "tone"})
    assert answer.status == 200, answer.body
    return str(answer.json()["result"]["id"])


def upload(node: Node, id: str, name: str, data: bytes) -> bool:
    body, kind = form(name, data)
    return bool(node.fetch("POST", f"{BASE}/{id}/finetune-assets", body, headers={"content-type": kind}).json()["success"])


def test_fine_tunes_live_through_the_death_of_anything(node: Node):
    id = create(node)
    assert upload(node, id, CONFIG, config())
    place = node.data_dir / "finetunes" / base_folder(MODEL) / id
    contents = [weights(width=WIDTH, fill=fill) for fill in range(3)]
    assert upload(node, id, WEIGHTS, contents[0])
    taken = 0
    for round in range(count(3, long=20)):
        stop = threading.Event()

        def go_on(stop: threading.Event = stop) -> None:
            nonlocal taken
            for content in itertools.cycle(contents):
                if stop.is_set():
                    return
                with contextlib.suppress(OSError, Closed, NodeFailed):  # or the next control plane answers it
                    taken += upload(node, id, WEIGHTS, content)

        before = taken
        thread = threading.Thread(target=go_on)
        thread.start()

        def went_on(before: int = before) -> bool:
            return taken > before

        until(went_on, within_s=20, what="an upload has been taken")
        control_pid = node.control_pid
        os.kill(control_pid, signal.SIGKILL)
        if round % 2:
            node.kill()
            node.start()
        else:
            node.wait_next_control_plane(after_pid=control_pid)
        stop.set()
        thread.join(bound(60))
        assert not thread.is_alive()
        assert (place / WEIGHTS).read_bytes() in contents, "half of an upload"
        (listed,) = node.fetch("GET", BASE).json()["result"]
        assert listed["id"] == id
    assert node.fetch("DELETE", f"{BASE}/{id}").status == 200
    assert not place.exists()
    assert node.stop() == 0
