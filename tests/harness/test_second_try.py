"""Which tests get a second try, what is fresh at it, and that the report hides nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.bounds import bound
from tests.harness.node import node_environ

REPOSITORY = Path(__file__).parents[2]
CONFTEST = """
from tests.harness import second_try
from tests.harness.alone import pytest_configure_node, pytest_xdist_auto_num_workers, pytest_xdist_make_scheduler, put_in_order

def pytest_collection_modifyitems(config, items):
    put_in_order(config, items)
    second_try.allow(config, items)

def pytest_terminal_summary(terminalreporter):
    second_try.tell(terminalreporter)
"""
ONCE = """
import pytest
from pathlib import Path

@pytest.fixture
def number(request):
    "How often this fixture was made for the test."
    with open(f"made-{request.node.name}", "a") as file:
        file.write("x")
    return len(Path(f"made-{request.node.name}").read_text())

def test_once(number): assert number == 2, "the text of the first failure"
def test_always(number): assert number < 0, f"failed at try {number}"
"""


def run(folder: Path, *arguments: str, **environ: str) -> str:
    for name in ("http", "unit"):
        (folder / "tests" / name).mkdir(parents=True)
        (folder / f"tests/{name}/test_{name}.py").write_text(ONCE.replace("test_", f"test_{name}_"))
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  slow: x\n  alone: x\n")
    kept = {name: value for name, value in node_environ().items() if not name.startswith("FORNADA_TEST_")}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "xdist",
        "-p",
        "pytest_rerunfailures",
        "-p",
        "no:cacheprovider",
        "--import-mode=importlib",
    ]
    environment = {**kept, "PYTHONPATH": str(REPOSITORY), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environ}
    done = subprocess.run(
        [*command, *arguments], cwd=folder, capture_output=True, text=True, env=environment, timeout=bound(60), check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("arguments", [(), ("-n", "2")])
def test_only_tests_with_processes_are_run_again_with_fresh_fixtures_and_the_first_failure_is_told(
    tmp_path: Path, arguments: tuple[str, ...]
):
    said = run(tmp_path, *arguments)
    assert "3 failed, 1 passed, 2 rerun" in said
    first = said.partition("FAILED AT FIRST: 2 ")[2]
    assert "test_http_once" in first and "the text of the first failure" in first and "failed at try 1" in first
    assert {path.name: len(path.read_text()) for path in tmp_path.glob("made-*")} == {
        "made-test_http_once": 2,
        "made-test_http_always": 2,
        "made-test_unit_once": 1,
        "made-test_unit_always": 1,
    }


@pytest.mark.parametrize("variable", [{"FORNADA_TEST_SECOND_TRY": "0"}, {"FORNADA_TEST_LONG": "1"}])
def test_who_looks_for_races_gets_no_second_try(tmp_path: Path, variable: dict[str, str]):
    said = run(tmp_path, **variable)
    assert "4 failed" in said and "rerun" not in said.rpartition("\n=")[2] and "FAILED AT FIRST" not in said
