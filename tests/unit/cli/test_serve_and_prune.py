"""The two commands that don't only talk to a node: serve starts one, prune can do without."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from fornada.app.data_directory import locked
from fornada.cli.main import fornada
from tests.bounds import bound
from tests.unit.cli.conftest import Cli, line
from tests.unit.cli.fake_node import FakeNode, error, say


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--port", "70000"], "--port"),
        (["--isolation", "chroot"], "--isolation"),
        (["--host", "0.0.0.0"], "--host 0.0.0.0 is refused"),
        (["--config", "nowhere.toml"], "nowhere.toml: No such file or directory"),
        (["--config", "wrong.toml"], "[node] unknown key 'max_residents'; did you mean 'max_resident'?"),
    ],
)
def test_a_configuration_that_can_not_be_is_one_line_and_exit_code_2(cli: Cli, home: Path, args: list[str], said: str):
    (home / "wrong.toml").write_text("[node]\nmax_residents = 1\n")
    result = cli("serve", *args)
    assert result.exit_code == 2
    assert said in line(result)


STARTS = """
import sys, types
module = types.ModuleType('fornada.app.serve')
def serve(settings):
    print(settings.host, settings.port, settings.data_dir, settings.isolation, settings.ready_example)
    return 3
module.serve = serve
sys.modules['fornada.app.serve'] = module
from fornada.cli.main import main
main()
"""


def test_serve_hands_its_flags_to_the_node_and_ends_with_its_code(home: Path):
    args = ["serve", "--host", "::1", "--port", "0", "--data-dir", "here", "--isolation", "none", "--ready-example"]
    done = subprocess.run([sys.executable, "-c", STARTS, *args], capture_output=True, text=True, timeout=bound(30), cwd=home)
    assert done.stdout == f"::1 0 {home}/here none True\n", done.stderr
    assert done.returncode == 3


def test_the_node_prunes_while_it_runs(cli: Cli, node: FakeNode):
    freed = {"freed_bytes": 3 * 1024**2, "removed": {"environments": 2, "artifacts": 1}}
    node.on("POST", "/api/v1/prune", say(freed))
    assert cli("prune").stdout.splitlines() == ["removed 2 of environments", "removed 1 of artifacts", "freed 3 MiB"]
    assert json.loads(cli("prune", "--json").stdout) == freed


def test_nothing_to_prune_is_said(cli: Cli, node: FakeNode):
    node.on("POST", "/api/v1/prune", say({"freed_bytes": 0, "removed": {}}))
    assert cli("prune").stdout == "freed 0 B\n"


def test_a_refusal_to_prune_is_told(cli: Cli, node: FakeNode):
    node.on("POST", "/api/v1/prune", error(503, 3100, "draining", retry_after="2"))
    result = cli("prune")
    assert result.exit_code == 1
    assert "draining [3100, the node's fault, for now]; try again in 2 s" in line(result)


def test_a_named_node_that_is_not_there_is_not_replaced_by_a_local_directory(cli: Cli, home: Path, nowhere: str):
    (home / "none").mkdir()
    result = cli("prune", url=nowhere)
    assert result.exit_code == 1
    assert "no node answers" in line(result)


def test_a_data_directory_that_is_not_there_is_told(cli: Cli, home: Path):
    result = cli("prune", "--data-dir", home / "nowhere")
    assert result.exit_code == 1
    assert "No such file or directory" in line(result)


def test_a_data_directory_is_pruned_without_a_node(cli: Cli, home: Path):
    (home / "data" / "environments" / ("ab" * 16)).mkdir(parents=True)
    (home / "data" / "environments" / ("ab" * 16) / "file").write_text("x" * 10_000)
    result = cli("prune", "--data-dir", home / "data")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("removed 1 of environments\nfreed ")
    assert not list((home / "data" / "environments").iterdir())


def test_a_data_directory_in_use_is_not_pruned_behind_its_node(cli: Cli, home: Path):
    (home / "data").mkdir()
    with locked(home / "data"):
        result = cli("prune", "--data-dir", home / "data")
    assert result.exit_code == 1
    assert "can't be pruned" in line(result)


def test_version_is_the_packages():
    result = CliRunner().invoke(fornada, ["--version"])
    assert result.stdout == "fornada 0.1.0\n"
