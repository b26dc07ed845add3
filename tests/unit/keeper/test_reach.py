"""Paths that a child with a uid of its own can't use, found before there is one."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fornada.keeper.reach import closed


@pytest.fixture
def home() -> Iterator[Path]:
    """A Python of the shape of those that uv installs, in a folder that everybody may pass."""
    with tempfile.TemporaryDirectory(prefix="fornada-reach-", dir="/var/tmp") as folder:
        place = Path(folder)
        place.chmod(0o755)
        for name in ("python/bin", "python/lib/python3.99"):
            (place / name).mkdir(parents=True)
        (place / "python/lib/python3.99/os.py").touch()
        shutil.copy(sys.executable, place / "python/bin/python3.99")
        (place / "python/bin/python3.99").chmod(0o755)
        (place / "python/bin/python").symlink_to("python3.99")
        (place / "data").mkdir(mode=0o700)
        for each in place.rglob("*"):
            if each.is_dir() and each.name != "data":
                each.chmod(0o755)
        yield place


def found(home: Path, *, own_mounts: bool) -> list[str]:
    return [str(path.relative_to(home)) for path in closed(str(home / "python/bin/python"), home / "data", own_mounts=own_mounts)]


def test_nothing_is_in_the_way_of_what_everybody_may_use(home: Path):
    assert found(home, own_mounts=True) == found(home, own_mounts=False) == []


def test_a_closed_folder_above_is_in_the_way_where_there_are_no_mounts(home: Path):
    home.chmod(0o700)
    assert found(home, own_mounts=True) == []
    assert found(home, own_mounts=False) == ["."], "each once"


def test_a_data_directory_that_is_still_to_be_made_is_the_node_s_own(home: Path):
    assert closed(str(home / "python/bin/python"), home / "new" / "data", own_mounts=False) == []


@pytest.mark.parametrize("own_mounts", [True, False])
@pytest.mark.parametrize("what", ["python/bin/python3.99", "python/lib/python3.99", "python/lib/python3.99/os.py"])
def test_a_python_that_others_may_not_use_is_in_the_way_always(home: Path, what: str, own_mounts: bool):
    (home / what).chmod(0o700)
    assert what in found(home, own_mounts=own_mounts)
