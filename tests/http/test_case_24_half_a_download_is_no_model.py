"""Case 24: an artifact is whole and verified, or it isn't there; whatever is killed, cut off or overwritten."""

import hashlib
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.bounds import count
from tests.harness.bundles import archive
from tests.harness.fixtures import StartNode
from tests.harness.mirror import Mirror
from tests.harness.node import Node
from tests.harness.processes import kill
from tests.harness.waiting import Background, until

KILLS = count(3, long=20)
STEP = 3 * 1024 * 1024
SIZE = (KILLS + 1) * STEP  # so much that the last kill, too, hits a download: each goes on where the one before it stopped
NAME = "@test/weighty"
CODE = """
import hashlib
import fornada_sdk

class Model(fornada_sdk.Model):
    def load(self, context):
        with open(context.artifacts["weights/w.bin"], "rb") as weights:
            self.digest = hashlib.sha256(weights.read()).hexdigest()

    def run(self, inputs, context):
        return {"digest": self.digest}
"""


class Weights:
    """A model whose one artifact only the mirror has, and the node that is to serve it."""

    def __init__(self, mirror: Mirror, node: Node, digest: str) -> None:
        self.mirror, self.node, self.digest = mirror, node, digest

    def ask(self) -> str | None:
        """The digest of what the model loaded; None for a refusal, which must name the file."""
        answer = self.node.run(NAME, {}, timeout_s=30)
        if answer.status == 200:
            return str(answer.result["digest"])
        assert answer.status == 503, answer.body
        assert "w.bin" in answer.message, f"a refusal names the file: {answer.message}"
        return None

    def stored(self) -> list[Path]:
        """Where the node keeps the artifact: one file, perhaps with several names."""
        found = [p for p in (self.node.data_dir / "artifacts").rglob("*") if p.is_file() and p.stat().st_size == SIZE]
        assert found
        return found


@pytest.fixture
def weights(new_node: StartNode) -> Iterator[Weights]:
    data = random.Random(24).randbytes(SIZE)
    digest = hashlib.sha256(data).hexdigest()
    with Mirror({digest: data}) as mirror:
        config = f'[node]\nbackoff_s = 0.2\ndrain_s = 5\nkill_s = 2\n[outbound]\nallow_private = ["{mirror.host_port}"]\n'
        node = new_node(config=config, environ={"FORNADA_MIRROR": mirror.url}).start()
        toml = f'name = "{NAME}"\n[[artifacts]]\npath = "weights/w.bin"\nsha256 = "{digest}"\nsource = []\n'
        node.deploy(NAME, archive({"model.toml": toml, "model.py": CODE}))
        yield Weights(mirror, node, digest)
        assert node.stop() == 0


def test_kills_at_random_bytes_of_a_download_never_leave_a_bad_file(weights: Weights):
    node, mirror = weights.node, weights.mirror
    mirror.pace_bytes_s = 3 * STEP
    chance = random.Random(1)
    with Background() as background:
        for _ in range(KILLS):
            pid, target = node.control_pid, mirror.sent + chance.randrange(STEP // 2, STEP)
            caller = background.start(partial(node.cut_off, NAME, {}))
            mirror.wait_sent(target)
            assert node.state(NAME) != "ready"
            kill(pid)
            caller.result()
            node.wait_next_control_plane(after_pid=pid)
    mirror.pace_bytes_s = 0
    assert weights.ask() == weights.digest
    assert any(mirror.ranges), "a download that broke off is resumed, not begun again"


def test_a_download_that_breaks_off_is_taken_up_again_or_refused_with_the_file_s_name(weights: Weights):
    weights.mirror.break_after = SIZE // 3
    first = weights.ask()
    assert first in (None, weights.digest)
    weights.mirror.break_after = 0
    until(lambda: weights.ask() == weights.digest, within_s=8, what="the whole file arrives", every_s=0.3)


def test_the_right_size_with_zeros_inside_is_refused_by_name(weights: Weights):
    good = weights.mirror.files[weights.digest]
    weights.mirror.files[weights.digest] = good[: SIZE // 2] + bytes(SIZE - SIZE // 2)
    assert weights.ask() is None
    assert weights.node.state(NAME) == "failed"
    weights.mirror.files[weights.digest] = good
    weights.node.act(NAME, "reset")
    assert weights.ask() == weights.digest


@pytest.mark.parametrize("damage", ["truncated", "zeroed"])
def test_a_damaged_file_in_the_cache_is_repaired_or_named(weights: Weights, damage: str):
    assert weights.ask() == weights.digest
    weights.node.unload(NAME)
    for stored in weights.stored():
        stored.chmod(0o644)
        if damage == "truncated":
            with stored.open("r+b") as file:
                file.truncate(SIZE // 2)
        else:
            stored.write_bytes(bytes(SIZE))
    assert weights.ask() in (weights.digest, None)
    until(lambda: weights.ask() == weights.digest, within_s=8, what="the file is fetched again", every_s=0.3)
