"""A zygote without walls: what it imports, what its children have in common, and what they must not have in common."""

import os
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fornada_sdk.wire.messages import Kind
from tests.bounds import bound
from tests.unit.sdk.zygote_driver import Forked, Zygote, killed

MODEL = """
import os, random, sys
try:
    import numpy
except ImportError:
    numpy = None
def handle_request(request, context):
    return {
        "echo": request.body.json.get("echo"),
        "env": dict(os.environ),
        "cwd": os.getcwd(),
        "pid": os.getpid(),
        "chance": random.random(),
        "numpy": numpy and numpy.random.random(),
        "fds": sorted(os.listdir("/proc/self/fd"), key=int),
        "loaded": "json.tool" in sys.modules,
        "umask": os.umask(0o022),
    }
"""


@pytest.fixture
def zygote() -> Iterator[Callable[..., Zygote]]:
    made: list[Zygote] = []

    def start(*modules: str, **options: Any) -> Zygote:
        made.append(Zygote(*modules, **options))
        return made[-1]

    yield start
    for each in made:
        each.end()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(textwrap.dedent(MODEL))
    return tmp_path


def serving(child: Forked, folder: Path) -> Any:
    """Its first answer."""
    child.assign(folder)
    plane = child.attach()
    plane.ready()
    return plane.call({"echo": child.name})


def test_it_says_what_it_has_imported_and_what_it_could_not(zygote):
    warm = zygote("json.tool", "no_such_module").hear(Kind.WARM)
    assert warm["modules"][0] == "json.tool"
    assert "fornada_sdk.runner.main" in warm["modules"]
    assert warm["failed"] == {"no_such_module": "ModuleNotFoundError: No module named 'no_such_module'"}
    assert warm["threads"] == 1
    assert 0 < warm["import_s"] < bound(10)


def test_an_import_that_ends_the_interpreter_is_one_that_failed(zygote, tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    (site / "ends.py").write_text("raise SystemExit(3)")
    warm = zygote("ends", python=python_with(site, tmp_path)).hear(Kind.WARM)
    assert warm["failed"] == {"ends": "SystemExit: 3"}


def test_a_child_is_a_runner_that_has_the_imports(zygote, folder):
    parent = zygote("json.tool")
    parent.hear(Kind.WARM)
    child = parent.fork("first", env={"PATH": "/usr/bin", "MINE": "1"}, cwd=str(folder))
    answer = serving(child, folder)
    assert answer["echo"] == "first"
    assert answer["loaded"] is True
    assert answer["cwd"] == str(folder)
    assert answer["pid"] == child.outer != parent.pid
    assert answer["env"]["MINE"] == "1"
    assert "CUDA_VISIBLE_DEVICES" not in answer["env"]


def test_a_child_has_nothing_of_its_parent_or_its_siblings(zygote, folder):
    parent = zygote()
    parent.hear(Kind.WARM)
    one, two = parent.fork("one"), parent.fork("two")
    answers = [serving(child, folder) for child in (one, two)]
    assert answers[0]["pid"] != answers[1]["pid"]
    # 0 to 3 and what a runner opens itself: the second has no more than the first, whose sibling it is.
    assert len(answers[0]["fds"]) == len(answers[1]["fds"])
    assert answers[0]["chance"] != answers[1]["chance"]
    assert answers[0]["umask"] == 0o022


def test_its_end_is_told_with_how_it_ended(zygote, folder):
    parent = zygote()
    parent.hear(Kind.WARM)
    one, two = parent.fork("one"), parent.fork("two")
    serving(one, folder)
    killed(two)
    gone = parent.hear(Kind.GONE, "two")
    assert (gone["status"], gone["signal"]) == (None, 9)
    one.planes[0].stop(0)
    one.keeper.close()
    gone = parent.hear(Kind.GONE, "one")
    assert gone["signal"] is None
    assert gone["max_rss_bytes"] > 1 << 20
    assert one.ended()


def test_a_child_that_cannot_go_where_it_is_to_work_says_so(zygote):
    parent = zygote()
    parent.hear(Kind.WARM)
    child = parent.order("lost", cwd="/no/such/place")
    parent.hear(Kind.FORKED, "lost")
    assert "/no/such/place" in child.report()
    assert parent.hear(Kind.GONE, "lost")["status"] == 127


def test_with_the_keeper_it_goes(zygote):
    parent = zygote()
    parent.hear(Kind.WARM)
    child = parent.fork("one")
    parent.channel.close()
    assert parent.exit_code() == 70
    assert child.ended()


def test_a_thread_that_an_import_leaves_makes_it_unfit(zygote, tmp_path):
    code = "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    site = tmp_path / "site"
    site.mkdir()
    (site / "busy.py").write_text(code)
    parent = zygote("busy", python=python_with(site, tmp_path))
    unfit = parent.hear(Kind.UNFIT)
    assert unfit["reason"] == "the import of busy left 1 threads running"
    assert parent.exit_code() == 1


def test_a_thread_that_only_helps_is_waited_for(zygote, tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    (site / "brief.py").write_text("import threading, time; threading.Thread(target=time.sleep, args=(0.05,)).start()")
    parent = zygote("brief", python=python_with(site, tmp_path))
    assert "brief" in parent.hear(Kind.WARM)["modules"]


def python_with(site: Path, place: Path) -> Path:
    """An environment whose packages are those of `site`."""
    import venv

    venv.create(place / "environment", symlinks=True)
    (packages,) = (place / "environment").glob("lib/python3*/site-packages")
    for path in site.iterdir():
        os.symlink(path, packages / path.name)
    return place / "environment" / "bin" / "python"
