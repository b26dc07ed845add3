"""Root looks after a node that another user runs: what the commands leave in its data directory is that user's."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.throwaway import STRANGER
from tests.http.test_keys import fornada

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for somebody else")


@pytest.fixture
def theirs() -> Iterator[Path]:
    """An empty data directory of another user's."""
    folder = Path(tempfile.mkdtemp(prefix="fornada-theirs-", dir="/var/tmp"))
    data = folder / "data"
    data.mkdir()
    folder.chmod(0o755)
    os.chown(data, STRANGER, STRANGER)
    yield data
    shutil.rmtree(folder)


def owners(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.lstat().st_uid for path in folder.rglob("*")}


def test_the_first_key_a_prune_and_a_restore_leave_all_to_the_owner_of_the_directory(theirs: Path, tmp_path: Path):
    fornada("keys", "create", "--account", "a", "--role", "admin", "--data-dir", theirs)
    fornada("prune", "--data-dir", theirs)
    copy = tmp_path / "copy.sqlite"
    fornada("backup", copy, "--data-dir", theirs)
    assert copy.stat().st_uid == 0, "but what lies elsewhere is root's own"
    fornada("keys", "list", "--data-dir", theirs)
    found = owners(theirs)
    assert "store.sqlite" in found and "run/lock" in found and set(found.values()) == {STRANGER}, found
    for path in theirs.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    fornada("restore", copy, "--data-dir", theirs)
    found = owners(theirs)
    assert "store.sqlite" in found and set(found.values()) == {STRANGER}, found
