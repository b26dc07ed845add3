"""Case 39: each model sees its own dependencies on its first call, nobody else's, and nothing of ours; half an environment is none."""

import shutil
from functools import partial
from pathlib import Path

import pytest

from tests.harness.bundles import archive
from tests.harness.fixtures import StartNode
from tests.harness.node import Node
from tests.harness.processes import kill
from tests.harness.waiting import Background, at_once, until
from tests.harness.wheels import make_wheel

CODE = """
import importlib.metadata
import importlib.util
import sys

import tinypkg

OURS = ("fornada", "msgspec", "httptools", "uvloop", "starlette", "pytest")

def handle_request(request, context):
    return {
        "version": tinypkg.__version__,
        "installed": sorted(d.metadata["Name"].lower() for d in importlib.metadata.distributions()),
        "ours": [name for name in OURS if importlib.util.find_spec(name)],
        "path": sys.path,
    }
"""


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    for version in ("1.0", "2.0"):
        make_wheel(tmp_path / "wheels", "tinypkg", version)
    return tmp_path / "wheels"


def config(tmp_path: Path, links: list[Path], cache: str = "uv-cache") -> str:
    shown = ", ".join(f'"{link}"' for link in links)
    return f'[node]\ndrain_s = 5\nkill_s = 2\n[provision]\noffline = true\nfind_links = [{shown}]\ncache_dir = "{tmp_path / cache}"\n'


def deploy(node: Node, name: str, *requirements: str) -> None:
    listed = ", ".join(f'"{requirement}"' for requirement in requirements)
    node.deploy(name, archive({"model.toml": f'name = "{name}"\n[python]\ndependencies = [{listed}]\n', "model.py": CODE}))


def test_two_versions_of_one_package_cold_and_at_once_and_again_without_any_index(new_node: StartNode, wheels: Path, tmp_path: Path):
    node = new_node(config=config(tmp_path, [wheels])).start()
    names = {"@test/with-one": "1.0", "@test/with-two": "2.0"}
    for name, version in names.items():
        deploy(node, name, f"tinypkg=={version}")
    first = at_once([partial(node.ask, name, {}, timeout_s=60) for name in names], within_s=60)
    assert [answer["version"] for answer in first] == ["1.0", "2.0"]
    for answer in first:
        assert answer["ours"] == []
        assert set(answer["installed"]) <= {"tinypkg", "fornada-sdk"}
        assert not [entry for entry in answer["path"] if "/.venv/" in entry]
    assert node.stop() == 0

    shutil.rmtree(wheels)
    shutil.rmtree(tmp_path / "uv-cache", ignore_errors=True)
    node.config.write_text(config(tmp_path, []))
    node.start()
    second = at_once([partial(node.ask, name, {}, timeout_s=60) for name in names], within_s=60)
    assert [answer["version"] for answer in second] == ["1.0", "2.0"]
    assert node.stop() == 0


def test_half_an_environment_is_none(new_node: StartNode, wheels: Path, tmp_path: Path):
    many = {f"bulky/m{number}.py": f"VALUE = {number}\n" * 50 for number in range(3000)}
    make_wheel(wheels, "bulky", "1.0", files={**many, "bulky/__init__.py": ""})
    node = new_node(config=config(tmp_path, [wheels])).start()
    name = "@test/bulky"
    with Background() as background:
        deploy(node, name, "tinypkg==1.0", "bulky==1.0")
        caller = background.start(partial(node.cut_off, name, {}))
        until(partial(installing, node), within_s=20, what="the environment is being filled", every_s=0.005)
        kill(node.process.pid)
        node.wait()
        caller.result()
    node.nothing_left()
    node.start()
    answer = node.ask(name, {}, timeout_s=60)
    assert answer["version"] == "1.0" and "bulky" in answer["installed"]
    complete = "import bulky, importlib; [importlib.import_module(f'bulky.m{n}') for n in range(0, 3000, 100)]"
    code = f"def handle_request(request, context):\n    {complete}\n    return {{'complete': True}}\n"
    toml = 'name = "@test/bulky-too"\n[python]\ndependencies = ["tinypkg==1.0", "bulky==1.0"]\n'
    node.deploy("@test/bulky-too", archive({"model.toml": toml, "model.py": code}))
    assert node.ask("@test/bulky-too", {}, timeout_s=60) == {"complete": True}
    assert node.stop() == 0


def installing(node: Node) -> bool:
    """Some of the bulky package lies in an environment, and not all of it."""
    found = list((node.data_dir / "environments").rglob("bulky/m1*.py"))
    return len(found) > 0


def test_a_requirement_that_nobody_has_is_refused_by_name(new_node: StartNode, wheels: Path, tmp_path: Path):
    node = new_node(config=config(tmp_path, [wheels])).start()
    toml = 'name = "@test/missing"\n[python]\ndependencies = ["no-such-package-anywhere==9.9"]\n'
    answer = node.put("@test/missing", archive({"model.toml": toml, "model.py": CODE}))
    assert answer.status == 400, answer.body
    assert "no-such-package-anywhere" in answer.message
    deploy(node, "@test/fine", "tinypkg==2.0")
    assert node.ask("@test/fine", {}, timeout_s=60)["version"] == "2.0"
    assert node.stop() == 0


def test_requirements_txt_and_script_metadata_count_too(new_node: StartNode, wheels: Path, tmp_path: Path):
    node = new_node(config=config(tmp_path, [wheels])).start()
    node.deploy("@test/by-file", archive({"model.py": CODE, "requirements.txt": "tinypkg==1.0\n"}))
    script = '# /// script\n# dependencies = ["tinypkg==2.0"]\n# ///\n' + CODE
    node.deploy("@test/by-script", archive({"model.toml": 'name = "@test/by-script"\n', "model.py": script}))
    assert node.ask("@test/by-file", {}, timeout_s=60)["version"] == "1.0"
    assert node.ask("@test/by-script", {}, timeout_s=60)["version"] == "2.0"
    assert node.stop() == 0
