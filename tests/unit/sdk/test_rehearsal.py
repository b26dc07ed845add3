"""What a zygote plays before it forks: it leaves nothing behind, and what it moves does as before."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from fornada_sdk.runner import rehearsal
from tests.unit.sdk.driver import SRC

ALONE = """
import gc, json, os, sys
sys.path.insert(0, sys.argv[1])
from fornada_sdk.runner import rehearsal
from fornada_sdk.runner.session import Session
def state():
    return {
        "descriptors": sorted(map(int, os.listdir("/proc/self/fd"))),
        "modules": sorted(sys.modules),
        "path": sys.path,
        "streams": [repr(sys.stdout), repr(sys.stderr)],
        "tasks": len(os.listdir("/proc/self/task")),
        "files": os.listdir(os.environ["TMPDIR"]),
    }
rehearsal.rehearse()  # what is imported late is then there
before = state()
rehearsal.rehearse()
left = [type(found).__name__ for found in gc.get_objects() if isinstance(found, Session)]
gc.unfreeze()
left += [type(found).__name__ for found in gc.get_objects() if isinstance(found, Session)]
print(json.dumps([before, state(), left]))
"""


def alone(text: str, tmp_path: Path) -> Any:
    command = [sys.executable, "-I", "-B", "-c", text, str(SRC)]
    done = subprocess.run(command, env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)


def test_it_leaves_nothing_behind(tmp_path):
    before, after, left = alone(ALONE, tmp_path)
    assert after == before
    assert left == []
    assert before["files"] == []
    assert before["tasks"] == 1


def test_a_place_for_files_that_is_missing_is_said(tmp_path):
    failing = "import sys; sys.path.insert(0, sys.argv[1]); from fornada_sdk.runner.rehearsal import rehearse; rehearse()"
    command = [sys.executable, "-I", "-B", "-c", failing, str(SRC)]
    env = {**os.environ, "TMPDIR": str(tmp_path / "none")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "FileNotFoundError" in done.stderr


def test_what_is_gathered_does_as_before():
    def counter(step: int = 2, *, start: int = 10) -> Any:
        total = start

        def add(by: int) -> list[int]:
            nonlocal total
            total += by * step
            return [total + other for other in range(2)]

        return add

    other = counter
    before = counter.__code__
    add = counter()
    rehearsal.gather([(before.co_filename, before.co_firstlineno, before.co_name)])
    assert counter.__code__ is not before
    assert counter.__code__ == before
    assert other is counter
    assert [add(1), add(1), counter(start=0)(3)] == [[12, 13], [14, 15], [6, 7]]


def test_what_is_not_named_stays_where_it_is():
    def bystander() -> int:
        return 1

    before = bystander.__code__
    rehearsal.gather([("nowhere.py", 1, "bystander")])
    assert bystander.__code__ is before
