"""Engine "torch": exported programs without code, weights with code around them, and no pickles in either.

They need PyTorch, which is too large for every run: set FORNADA_TEST_TORCH=1 to build an environment with it and run them.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fornada.node.provision.engines import ENGINE_NEEDS
from tests.models.environments import UV, digest, made, run
from tests.models.runner import Runner

pytestmark = [
    pytest.mark.packages,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.environ.get("FORNADA_TEST_TORCH") != "1", reason="PyTorch is installed for FORNADA_TEST_TORCH=1 alone"),
]

NEEDS = [need.requirement for need in ENGINE_NEEDS["torch"]]
MAKE = Path(__file__).parent / "weights" / "make_torch.py"
UNPICKLED = Path("/tmp/fornada-test-unpickled")
Serve = Callable[..., Runner]
CODE = """
import torch
import fornada_sdk

class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.zeros(2))
        self.register_buffer("small", torch.zeros(1, dtype=torch.bfloat16))
        self.register_buffer("none", torch.zeros(0, 4))

class Model(fornada_sdk.Model):
    def load(self, context):
        self.network = self.engine.load_into(Network())
        assert not self.network.training

    def run(self, request, context):
        with torch.inference_mode():
            product = torch.tensor(request.body.json["x"]) * self.network.factor
        return {"y": product.tolist(), "small": self.network.small.float().tolist(), "threads": torch.get_num_threads()}
"""


@pytest.fixture(scope="module")
def python() -> Path:
    """An interpreter with the packages that the engine asks for."""

    def build(target: Path) -> None:
        run(UV, "venv", "--quiet", "--python", sys.executable, target)
        run(UV, "pip", "install", "--quiet", "--only-binary", ":all:", "--python", target / "bin" / "python", *NEEDS)

    return made(f"torch-{digest(*map(str.encode, NEEDS), sys.version.encode())}", build) / "bin" / "python"


@pytest.fixture(scope="module")
def weights(python: Path) -> Path:
    def make(target: Path) -> None:
        target.mkdir()
        run(python, "-I", "-B", "-W", "ignore", MAKE, target)

    return made(f"torch-weights-{digest(MAKE.read_bytes(), *map(str.encode, NEEDS))}", make)


@pytest.fixture
def serve(python: Path, weights: Path, tmp_path: Path) -> Iterator[Serve]:
    """Serves one of the folders that make_torch.py writes: `serve("affine")`, `serve("weights", code=...)`."""
    running: list[Runner] = []

    def start(name: str, *, code: str = "", **changes: Any) -> Runner:
        number = len(os.listdir(tmp_path))
        folder = tmp_path / f"model-{number}"
        shutil.copytree(weights / name, folder)
        if code:
            (folder / "model.py").write_text(code)
        scratch = tmp_path / f"scratch-{number}"
        scratch.mkdir()
        assignment = {
            "instance": "i-1",
            "model": "@test/torch",
            "engine": "torch",
            "folder": str(folder),
            "entry": "model.py" if code else "",
            "scratch": str(scratch),
            "resources": {"memory_bytes": 0, "threads": 2},
            "serving": {"concurrency": 1, "max_batch": 4, "max_wait_ms": 0},
            **changes,
        }
        runner = Runner(python, assignment, tmp_path / f"log-{number}")
        running.append(runner)
        return runner

    yield start
    for runner in running:
        runner.close()


def together(runner: Runner, *bodies: Any) -> list[Any]:
    answers = runner.send_all([(json.dumps(body).encode(), "application/json", []) for body in bodies])
    return [answer.json["outputs"] for answer in answers]


def test_an_exported_program_alone_is_a_model(serve: Serve) -> None:
    runner = serve("affine")
    assert runner.ready["tensors"] == {
        "inputs": [
            {"name": "x", "dtype": "FP32", "shape": [-1, 2]},
            {"name": "n", "dtype": "INT64", "shape": [-1]},
            {"name": "shift", "dtype": "FP32", "shape": [-1]},
        ],
        "outputs": [
            {"name": "y", "dtype": "FP32", "shape": [-1, 2]},
            {"name": "rows", "dtype": "INT64", "shape": [-1]},
            {"name": "pair_0", "dtype": "FP32", "shape": [-1]},
            {"name": "pair_1", "dtype": "INT64", "shape": [-1]},
        ],
    }
    inputs = {"x": [[1, 2], [3, 4]], "n": [5, 6], "shift": [0, 1]}
    expected = {"y": [[2, 4], [7, 9]], "rows": [6, 7], "pair_0": [3, 7], "pair_1": [5, 6]}
    assert runner.ask({"inputs": inputs}).json == {"outputs": expected}
    bodies = [{"inputs": {"x": [[i, 1]] * (i + 1), "n": [i] * (i + 1), "shift": [0] * (i + 1)}} for i in range(6)]
    assert [each["y"] for each in together(runner, *bodies)] == [[[2 * i, 2]] * (i + 1) for i in range(6)]


def test_what_a_program_was_not_exported_for_fails_the_request_alone(serve: Serve) -> None:
    runner = serve("affine")
    for inputs, why in [({"x": [[1, 2, 3]], "n": [1], "shift": [1]}, "it came as [1, 3]"), ({"x": [[1, 2]]}, "is missing")]:
        answer = runner.ask({"inputs": inputs})
        assert answer.status == "bad_request" and why in answer.head["message"]
    answer = runner.ask({"inputs": {"x": [[1, 2]], "n": [1, 2], "shift": [1]}})
    assert answer.status == "raised" and "wasn't exported for this input" in answer.head["message"]
    assert runner.ask({"inputs": {"x": [[1, 2]], "n": [1], "shift": [0]}}).json["outputs"]["y"] == [[2, 4]]


def test_arguments_within_arguments_are_inputs_of_their_own(serve: Serve) -> None:
    runner = serve("sum")
    names = [each["name"] for each in runner.ready["tensors"]["inputs"]]
    assert len(names) == 2
    assert runner.ask({"inputs": {names[0]: [1, 2], names[1]: [10, 20]}}).json == {"outputs": {"output_0": [11, 22]}}


def test_a_program_for_one_row_takes_several(serve: Serve) -> None:
    runner = serve("fixed")
    assert runner.ready["tensors"]["inputs"] == [{"name": "x", "dtype": "FP32", "shape": [1, 2]}]
    assert together(runner, *({"inputs": [[i, 1]]} for i in range(9))) == [{"output_0": [[2 * i, 2]]} for i in range(9)]


def test_numbers_that_numpy_has_no_type_for_are_shown_as_floats(serve: Serve) -> None:
    runner = serve("half")
    assert runner.ready["tensors"]["inputs"][0]["dtype"] == "FP32"
    assert runner.ask({"inputs": [[1.5, -2]]}).json == {"outputs": {"output_0": [[3, -4]]}}


@pytest.mark.parametrize("name", ["weights", "pickled"])
def test_weights_come_into_the_authors_network(serve: Serve, name: str) -> None:
    assert serve(name, code=CODE).ask({"x": [1.0, 2.0]}).json == {"y": [2, 6], "small": [0.5], "threads": 2}


@pytest.mark.parametrize("name", ["evil", "evil-weights"])
def test_a_pickle_is_not_run(serve: Serve, name: str) -> None:
    UNPICKLED.unlink(missing_ok=True)
    with pytest.raises(AssertionError, match=r"(?i)weights.?only|unsupported"):
        serve(name, code=CODE if name == "evil-weights" else "")
    assert not UNPICKLED.exists()


def test_weights_without_code_are_refused_in_words(serve: Serve) -> None:
    with pytest.raises(AssertionError, match="holds weights alone"):
        serve("weights")
    with pytest.raises(AssertionError, match="must have run or run_batch"):
        serve("weights", code="import fornada_sdk\nclass Model(fornada_sdk.Model):\n    pass\n")


@pytest.mark.parametrize("change", ["cut", "offsets", "size", "text"])
def test_a_broken_safetensors_file_is_refused(serve: Serve, weights: Path, change: str) -> None:
    whole = (weights / "weights" / "w.safetensors").read_bytes()
    broken = {
        "cut": whole[:-4],
        "offsets": whole.replace(b'"data_offsets": [0, 8]', b'"data_offsets": [9, 8]'),
        "size": b"\xff" * 8 + whole[8:],
        "text": b"no safetensors",
    }[change]
    assert broken != whole
    code = CODE.replace("def load(self, context):", f"def load(self, context):\n        open(self.engine.path, 'wb').write({broken!r})")
    with pytest.raises(AssertionError, match="ValueError"):
        serve("weights", code=code)


WIDE = """
import torch
import fornada_sdk

class Model(fornada_sdk.Model):
    def load(self, context):
        self.network = self.engine.load_into(torch.nn.Linear(3000, 3000))
        self.weight = self.network.weight
        if context.settings.get("half"):
            self.network.half()
        if context.settings.get("changed"):
            with torch.no_grad():
                self.network.weight[0, 0] += 1

    def run(self, request, context):
        with torch.inference_mode():
            row = torch.full((1, 3000), float(request.body.json["x"]), dtype=self.network.weight.dtype)
            return {"sum": self.network(row).float().sum().item(), "same": self.weight is self.network.weight}
"""
MIB = 1024 * 1024


def sleeps(runner: Runner, request: Any, least_mib: int) -> None:
    """It gives so much back, with equal answers afterwards, as often as it is asked."""
    assert runner.ready["sleeps"] is True
    before, held = runner.ask(request).json, runner.held()
    for _ in range(3):
        runner.sleep()
        assert runner.held() <= held - least_mib * MIB, f"{held // MIB} MiB awake, {runner.held() // MIB} asleep"
        runner.wake()
        assert runner.ask(request).json == before
        assert runner.held() <= held * 1.15, f"{held // MIB} MiB at first, {runner.held() // MIB} after another sleep"


def test_a_program_s_weights_leave_the_memory_while_it_sleeps(serve: Serve) -> None:
    sleeps(serve("wide"), {"inputs": {"input": [[0.5] * 3000]}}, 30)


@pytest.mark.parametrize("folder", ["wide-weights", "wide-tensors"])
def test_a_network_s_weights_leave_the_memory_while_it_sleeps(serve: Serve, folder: str) -> None:
    runner = serve(folder, code=WIDE)
    assert runner.ask({"x": 1}).json["same"] is True
    sleeps(runner, {"x": 0.5}, 30)


def test_a_network_that_was_cast_comes_back_as_it_was(serve: Serve) -> None:
    sleeps(serve("wide-weights", code=WIDE, settings={"half": True}), {"x": 0.5}, 12)


def test_what_an_author_changed_stays_while_it_sleeps(serve: Serve) -> None:
    runner = serve("wide-weights", code=WIDE, settings={"changed": True})
    before, held = runner.ask({"x": 1}).json, runner.held()
    runner.sleep()
    assert runner.held() > held - 10 * MIB
    runner.wake()
    assert runner.ask({"x": 1}).json == before


def test_weights_that_an_author_keeps_alone_can_not_sleep(serve: Serve) -> None:
    code = WIDE.replace("self.engine.load_into(torch.nn.Linear(3000, 3000))", "torch.nn.Linear(3000, 3000)")
    assert "sleeps" not in serve("wide-weights", code=code).ready
