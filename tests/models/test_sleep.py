"""Each engine's weights leave the memory while the model sleeps, and come back with equal answers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.harness.processes import resident_bytes
from tests.models.conftest import MODELS, StartRunner
from tests.models.onnx_file import add_model
from tests.models.runner import Answer, Runner

pytestmark = [pytest.mark.packages, pytest.mark.slow, pytest.mark.timeout(900)]

MIB = 1024 * 1024
ROUNDS = 3


def picture(folder: Path) -> Callable[[Runner], Answer]:
    return lambda runner: runner.send((folder / "example" / "request.jpg").read_bytes(), "image/jpeg")


def asked(value: dict[str, Any]) -> Callable[[Runner], Answer]:
    return lambda runner: runner.ask(value)


class Case(NamedTuple):
    """`least` MiB are given back: a little less than was measured, of the weights and of what the library makes of them."""

    ask: Callable[[Runner], Answer]
    least: int


CHAT = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0, "max_tokens": 8}
CASES = {
    "minilm": Case(asked({"text": ["A cat sits on the mat.", "Es regnet."]}), 100),
    "mobilenet-v2": Case(picture(MODELS / "mobilenet-v2"), 5),
    "efficientnet-lite0": Case(picture(MODELS / "efficientnet-lite0"), 10),
    "smollm2-135m-instruct": Case(asked(CHAT), 100),
}


def content(answer: Answer) -> Any:
    """Without what differs from answer to answer: ids and times."""
    value = answer.json
    return value["choices"] if isinstance(value, dict) and "choices" in value else value


@pytest.mark.parametrize("slug", CASES)
def test_weights_leave_the_memory_and_come_back_with_equal_answers(start: StartRunner, slug: str) -> None:
    case = CASES[slug]
    runner = start(MODELS / slug)
    assert runner.ready["sleeps"] is True
    before = content(case.ask(runner))
    # Not the node's own measure, which counts a page that others have mapped too by its share: it grows when one of them ends.
    held = resident_bytes(runner.pid)
    for _ in range(ROUNDS):
        runner.sleep()
        asleep = resident_bytes(runner.pid)
        assert asleep <= held - case.least * MIB, f"{held // MIB} MiB awake, {asleep // MIB} asleep"
        runner.wake()
        assert content(case.ask(runner)) == before
        awake = resident_bytes(runner.pid)
        assert awake <= held * 1.15, f"{held // MIB} MiB at first, {awake // MIB} after another sleep"


AROUND = """
import fornada_sdk

class Model(fornada_sdk.Model):
    def load(self, context):
        self.seen = []
    {down}
    {up}
    def run(self, inputs, context):
        outputs = self.engine.run(inputs)
        return {{"y": outputs["y"].tolist(), "seen": self.seen}}
    def preprocess(self, request, context):
        import numpy
        return {{name: numpy.array(request.body.json[name], "float32") for name in "ab"}}
"""
DOWN = "def sleep(self, context): self.seen.append(['down', hasattr(self.engine, 'session')])"
UP = "def wake(self, context): self.seen.append(['up', hasattr(self.engine, 'session')])"
ASYNC = ("async " + DOWN, "async " + UP)


@pytest.mark.parametrize(("down", "up", "seen"), [
    (DOWN, UP, [["down", True], ["up", True]]),
    (*ASYNC, [["down", True], ["up", True]]),
    (DOWN, "", [["down", True]]),
    ("", UP, [["up", True]]),
], ids=["both", "async", "down", "up"])  # fmt: skip
def test_an_author_s_steps_go_around_the_engine_s(start: StartRunner, tmp_path: Path, down: str, up: str, seen: list[Any]) -> None:
    (tmp_path / "model.toml").write_text('name = "@test/around"\nengine = "onnx"\n[python]\nentry = "model.py"\n')
    (tmp_path / "requirements.lock").write_bytes((MODELS / "minilm" / "requirements.lock").read_bytes())
    (tmp_path / "add.onnx").write_bytes(add_model())
    (tmp_path / "model.py").write_text(AROUND.format(down=down, up=up))
    runner = start(tmp_path)
    assert runner.ready["sleeps"] is True
    sums = {"a": [[1, 2]], "b": [[10, 20]]}
    assert runner.ask(sums).json == {"y": [[11, 22]], "seen": []}
    runner.sleep()
    runner.wake()
    assert runner.ask(sums).json == {"y": [[11, 22]], "seen": seen}
