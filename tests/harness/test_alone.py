"""Tests side by side: which run together, which run alone, and in which order."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bounds import bound
from tests.harness.alone import pytest_xdist_auto_num_workers
from tests.harness.node import node_environ

REPOSITORY = Path(__file__).parents[2]
CONFTEST = """
import os, time
from pathlib import Path
import pytest
from tests.harness.alone import pytest_configure_node, pytest_xdist_auto_num_workers, pytest_xdist_make_scheduler, put_in_order

def pytest_collection_modifyitems(config, items):
    put_in_order(config, items)

@pytest.fixture(autouse=True)
def line(request):
    began = time.monotonic()
    yield
    with open("lines", "a") as file:
        file.write(f"{request.node.name} {began} {time.monotonic()} {os.getpid()}\\n")

@pytest.fixture(autouse=True, scope="session")
def slow_to_go():
    began = time.monotonic()
    yield
    time.sleep(0.3)
    with open("lines", "a") as file:
        file.write(f"end {began} {time.monotonic()} {os.getpid()}\\n")
"""
FILES = {
    "test_a.py": "import pytest, time\n@pytest.mark.parametrize('n', range(6))\ndef test_a(n): time.sleep(0.05)\n",
    "test_b.py": "import time\ndef test_b(): time.sleep(0.4)\n",
    "test_c.py": """
import pytest, time
@pytest.mark.alone
@pytest.mark.parametrize('n', range(3))
def test_alone(n): time.sleep(0.05)
def test_beside(): pass
""",
    "test_d.py": "import pytest\n@pytest.mark.slow\ndef test_slow(): pass\ndef test_of_its_file(): pass\n",
    "test_e.py": "import pytest\n@pytest.mark.alone\ndef test_alone_too(): pass\n",
}


class Line:
    """When a test ran, and in which process."""

    def __init__(self, text: str) -> None:
        self.name, began, ended, pid = text.split()
        self.began, self.ended, self.pid = float(began), float(ended), int(pid)


def run(folder: Path, *arguments: str, files: dict[str, str] = FILES) -> tuple["subprocess.CompletedProcess[str]", list[Line]]:
    """pytest over `files`, and what ran. No plugins but the one: starting each process with all of them takes a second."""
    for name, text in {**files, "conftest.py": CONFTEST}.items():
        (folder / name).write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  slow: x\n  alone: x\n")
    environ = {**node_environ(), "PYTHONPATH": str(REPOSITORY), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "no:cacheprovider", "--import-mode=importlib", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environ, timeout=bound(60), check=False)
    lines = folder / "lines"
    return done, [Line(line) for line in lines.read_text().splitlines()] if lines.exists() else []


def test_files_stay_together_and_what_is_marked_runs_when_nothing_else_does(tmp_path: Path):
    done, lines = run(tmp_path, "-n", "3")
    assert done.returncode == 0 and "14 passed" in done.stdout, done.stdout + done.stderr
    alone = [line for line in lines if "alone" in line.name]
    (pid,) = {line.pid for line in alone}
    first = min(line.began for line in alone)
    others = [line for line in lines if "alone" not in line.name and (line.name, line.pid) != ("end", pid)]
    assert len(alone) == 4 and all(line.ended <= first for line in others), "others' tests, and what they tear down at the end"
    assert len({line.pid for line in lines}) == 3
    for file in ("test_a[", "test_slow test_of_its_file"):
        assert len({line.pid for line in lines if line.name in file or line.name.startswith(file)}) == 1


def test_slow_files_come_first_and_what_is_marked_last(tmp_path: Path):
    done, lines = run(tmp_path)
    names = [line.name for line in lines if line.name != "end"]
    assert done.returncode == 0 and len(names) == 14, done.stdout
    assert set(names[:2]) == {"test_slow", "test_of_its_file"} and all("alone" in name for name in names[-4:])


@pytest.mark.parametrize(("narrow", "passed"), [("beside or alone_too", 2), ("nothing", 0)])
def test_a_part_of_the_tests_runs_too(tmp_path: Path, narrow: str, passed: int):
    done, _ = run(tmp_path, "-n", "2", "-k", narrow)
    assert done.returncode == (pytest.ExitCode.OK if passed else pytest.ExitCode.NO_TESTS_COLLECTED), done.stdout
    assert not passed or f"{passed} passed" in done.stdout, done.stdout


def test_fewer_tests_than_processes_could_begin_with_run_too(tmp_path: Path):
    files = {f"test_{name}.py": f"def test_{name}(): pass\n" for name in "ab"}
    done, lines = run(tmp_path, "-n", "2", files=files)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr
    assert {line.name for line in lines} >= {"test_a", "test_b"}


@pytest.mark.parametrize(
    ("wanted", "lost"),
    [("test_b.py test_none.py", "test_none.py"), ("test_b.py::test_none", "test_b.py::test_none")],
)
def test_what_isn_t_there_is_named_in_one_line(tmp_path: Path, wanted: str, lost: str):
    done, lines = run(tmp_path, "-n", "2", *wanted.split())
    said = done.stdout + done.stderr
    assert (done.returncode, lines) == (pytest.ExitCode.USAGE_ERROR, []), said
    (error,) = [line for line in said.splitlines() if line.startswith("ERROR: ")]
    assert error.endswith(f" {lost}") and "INTERNALERROR" not in said, said


@pytest.mark.parametrize("which", ["alone", "beside"])
def test_a_process_that_dies_fails_its_test_and_no_other(tmp_path: Path, which: str):
    mark = "@pytest.mark.alone\n" if which == "alone" else ""
    dies = f"import os, pytest\n{mark}def test_dies(): os._exit(3)\ndef test_of_the_file(): pass\n"
    done, lines = run(tmp_path, "-n", "2", files={**FILES, "test_f.py": dies})
    assert done.returncode == 1 and "1 failed, 15 passed" in done.stdout, done.stdout
    first = min(line.began for line in lines if "alone" in line.name)
    assert all(line.ended <= first for line in lines if "alone" not in line.name and line.name != "end")


def test_one_process_more_than_processors_and_no_more_than_four(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PYTEST_XDIST_AUTO_NUM_WORKERS", raising=False)
    assert pytest_xdist_auto_num_workers() == min(4, len(os.sched_getaffinity(0)) + 1)
    monkeypatch.setenv("PYTEST_XDIST_AUTO_NUM_WORKERS", "7")
    assert pytest_xdist_auto_num_workers() == 7
