"""Every example folder is complete, works alone with the SDK, and works on a node."""

import importlib.util
import io
import json
import subprocess
import sys
from pathlib import Path
from types import GeneratorType, ModuleType
from typing import Any

import pytest

from fornada_sdk import Context, Model, Request, Response
from tests.bounds import bound
from tests.docs.pages import REPOSITORY
from tests.harness.node import FORNADA, Node, node_environ

ALL = sorted(path.parent for path in (REPOSITORY / "examples").rglob("model.py"))
EXAMPLES = [folder for folder in ALL if folder.parent.name != "forms"]
FORMS = [folder for folder in ALL if folder.parent.name == "forms"]
"""They are tried on a node by tests/http/test_workers_ai_forms.py."""
CONTRACT = [folder for folder in EXAMPLES if folder.parent.name == "contract"]
NEED_PACKAGES = {"thumbnail", "moons"}
TOLERANCE = 0.02
"""Of a score between two machines, and of a pixel as a share of its range."""


def test_there_are_examples_and_a_page_lists_them():
    for folder in ALL:
        assert f"]({folder.name}/" in (folder.parent / "README.md").read_text()
    assert "](contract/README.md)" in (REPOSITORY / "examples/README.md").read_text()


@pytest.mark.parametrize("folder", ALL, ids=lambda folder: folder.name)
def test_an_example_has_code_a_request_and_its_answer(folder: Path):
    assert (folder / "model.py").is_file()
    assert len(list((folder / "example").glob("request.*"))) == 1
    assert len(list((folder / "example").glob("answer.*"))) == 1
    assert (folder / "model.toml").is_file() or folder.name == "echo", "echo alone shows that it can do without"


def request_of(folder: Path) -> Path:
    return next((folder / "example").glob("request.*"))


def expected(folder: Path) -> Any:
    path = next((folder / "example").glob("answer.*"))
    return json.loads(path.read_text()) if path.suffix == ".json" else path.read_bytes()


def same(answer: Any, wanted: Any) -> None:
    """Equal, but for the last digits of numbers and the last shade of pixels."""
    if isinstance(wanted, bytes) and not wanted.startswith(b"\x89PNG"):
        assert answer == wanted
    elif isinstance(wanted, bytes):
        from PIL import Image, ImageChops, ImageStat

        ours, theirs = (Image.open(io.BytesIO(each)) for each in (answer, wanted))
        assert (ours.format, ours.size, ours.mode) == (theirs.format, theirs.size, theirs.mode)
        assert max(ImageStat.Stat(ImageChops.difference(ours, theirs)).mean) <= TOLERANCE * 255
    elif isinstance(wanted, dict):
        assert isinstance(answer, dict)
        assert answer.keys() == wanted.keys()
        for key, value in wanted.items():
            same(answer[key], value)
    elif isinstance(wanted, list):
        assert isinstance(answer, list) and len(answer) == len(wanted)
        for one, other in zip(answer, wanted, strict=True):
            same(one, other)
    elif isinstance(wanted, float):
        assert answer == pytest.approx(wanted, abs=TOLERANCE)
    else:
        assert answer == wanted


def module_of(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{folder.name}", folder / "model.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def request(folder: Path) -> Request:
    path = request_of(folder)
    if path.suffix == ".json":
        return Request(json=json.loads(path.read_text()))
    return Request(bytes=path.read_bytes(), type=f"image/{path.suffix[1:]}")


def settings_of(folder: Path) -> dict[str, Any]:
    import tomllib

    path = folder / "model.toml"
    settings: dict[str, Any] = tomllib.loads(path.read_text()).get("settings", {}) if path.exists() else {}
    return settings


async def alone(folder: Path) -> Any:
    """The example's answer to its request, by the SDK alone; what it yields is collected as a node would."""
    module = module_of(folder)
    context = Context.inactive(settings={**settings_of(folder), "pause_s": 0})
    if hasattr(module, "handle_request"):
        answer = module.handle_request(request(folder), context)
        if isinstance(answer, GeneratorType):
            return {"items": list(answer)}
        return answer.body if isinstance(answer, Response) else answer
    model: Model = module.Model()
    model.load(context)
    found = model.run(model.preprocess(request(folder), context), context)
    if hasattr(found, "__aiter__"):
        return {"items": [item async for item in found]}
    answer = model.postprocess(found, context)
    return answer.body if isinstance(answer, Response) else answer


@pytest.mark.parametrize("folder", [folder for folder in ALL if folder.name != "moons"], ids=lambda folder: folder.name)
async def test_an_example_can_be_tried_without_a_node(folder: Path):
    same(await alone(folder), expected(folder))


def test_the_network_of_moons_can_be_trained_again(tmp_path: Path):
    (tmp_path / "train.py").write_text((REPOSITORY / "examples/moons/train.py").read_text())
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=bound(60), check=True)
    assert float(done.stdout.split("%")[0]) > 94
    made, committed = (tmp_path / "model.onnx").read_bytes(), (REPOSITORY / "examples/moons/model.onnx").read_bytes()
    assert len(made) == len(committed)


@pytest.mark.packages
@pytest.mark.parametrize(
    "folder",
    [pytest.param(folder, marks=[pytest.mark.slow] if folder.name in NEED_PACKAGES else []) for folder in EXAMPLES],
    ids=lambda folder: folder.name,
)
def test_an_example_works_on_a_node(node: Node, folder: Path, tmp_path: Path):
    def fornada(*arguments: object) -> str:
        environ = node_environ({"FORNADA_URL": node.url})
        command = [str(FORNADA), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=bound(100), env=environ, check=False)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    name = fornada("deploy", folder, "--wait").split(": version")[0]
    node.deployed.append(name)
    wanted = expected(folder)
    path = tmp_path / ("answer.bin" if isinstance(wanted, bytes) else "answer.json")
    fornada("run", name, "--file", request_of(folder), "--out", path)
    content = path.read_bytes()
    same(content if isinstance(wanted, bytes) else json.loads(content), wanted)
