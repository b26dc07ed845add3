"""Root looks after a node that another user runs: what the commands leave in its data directory is that user's."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.node import FORNADA
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


@pytest.mark.parametrize(
    "links",
    [
        ("store.sqlite",),
        ("store.sqlite-keys", "store.sqlite-wal", "logs/audit.log", "run/lock", "last-backup.json", "last-backup.json.new"),
        ("logs", "run"),
    ],
    ids=["store", "files", "folders"],
)
def test_a_link_that_the_owner_has_put_there_leads_root_nowhere(theirs: Path, tmp_path: Path, links: tuple[str, ...]):
    copy = tmp_path / "copy.sqlite"
    fornada("keys", "create", "--account", "a", "--role", "admin", "--data-dir", theirs)
    fornada("backup", copy, "--data-dir", theirs)
    victims = [theirs.parent / f"victim-{number}" for number, _ in enumerate(links)]
    for link, victim in zip(links, victims, strict=True):
        place = theirs / link
        shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
        victim.mkdir(mode=0o755) if link in ("logs", "run") else victim.write_text("root's")
        place.symlink_to(victim)
        os.chown(place, STRANGER, STRANGER, follow_symlinks=False)
    before = [(victim.stat().st_mode, victim.stat().st_nlink, 0) for victim in victims]
    for words in (["keys", "create", "--account", "a", "--role", "admin"], ["backup", "--force", copy], ["prune"], ["restore", copy]):
        done = subprocess.run([str(FORNADA), *map(str, words), "--data-dir", str(theirs)], capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1) and "bug" not in done.stderr, (words, done.stderr)
        assert [(victim.stat().st_mode, victim.stat().st_nlink, victim.stat().st_uid) for victim in victims] == before, words
        for victim in victims:
            assert list(victim.iterdir()) == [] if victim.is_dir() else victim.read_text() == "root's", words
