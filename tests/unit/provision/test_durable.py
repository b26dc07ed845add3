"""Files that are there completely or not at all, and the copy of the SDK."""

import errno
import os
import shutil
import subprocess
import sys

import pytest

from fornada.core.errors import DiskFull
from fornada.node.provision.durable import discard, disk_bytes, disk_errors, remove, write_file, write_folder
from fornada.node.provision.sdk import ensure_sdk, package_folder, sdk_key
from tests.bounds import bound


def test_a_file_is_replaced_at_once_and_nothing_is_left(tmp_path):
    path = tmp_path / "x"
    write_file(path, b"one")
    write_file(path, b"two", mode=0o640)
    assert path.read_bytes() == b"two"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]
    with pytest.raises(FileNotFoundError):
        write_file(tmp_path / "no" / "x", b"")


def test_a_folder_is_written_read_only_and_can_still_be_removed(tmp_path):
    folder = tmp_path / "f"
    write_folder(folder, {"a/b/run.sh": (b"x", True), "c": (b"y", False)})
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.rglob("*")}
    assert modes == {"a": 0o555, "b": 0o555, "run.sh": 0o555, "c": 0o444}
    with pytest.raises(FileExistsError):
        write_folder(folder, {})
    discard(folder)
    remove(folder)
    discard(folder)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_named_with_its_directory_and_other_errors_stay_what_they_are(tmp_path):
    for code in (errno.ENOSPC, errno.EDQUOT):
        with pytest.raises(DiskFull, match=rf"no space left on the disk that holds {tmp_path} \("), disk_errors(tmp_path):
            raise OSError(code, "x")
    with pytest.raises(PermissionError), disk_errors(tmp_path):
        raise OSError(errno.EACCES, "x")


def test_a_really_full_disk(small_disk):
    with pytest.raises(DiskFull, match=str(small_disk)), disk_errors(small_disk):
        write_file(small_disk / "x", b"x" * 30_000_000)
    assert list(small_disk.iterdir()) == []


def test_bytes_on_disk_count_a_file_once_however_many_names_it_has(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/x").write_bytes(b"x" * 100_000)
    once = disk_bytes(tmp_path)
    os.link(tmp_path / "a/x", tmp_path / "y")
    assert disk_bytes(tmp_path) == once >= 100_000
    assert disk_bytes(tmp_path / "nothing") == 0


def test_a_runner_gets_a_read_only_copy_of_the_sdk_named_by_its_content(tmp_path):
    copy = ensure_sdk(tmp_path, package_folder())
    assert copy.name == sdk_key(package_folder()) == sdk_key(copy / "fornada_sdk")
    assert ensure_sdk(tmp_path, package_folder()) == copy
    assert [entry.name for entry in tmp_path.iterdir()] == [copy.name]
    code = "import sys; sys.path.insert(0, sys.argv[1]); import fornada_sdk; print(fornada_sdk.__file__, fornada_sdk.__cached__)"
    done = subprocess.run([sys.executable, "-I", "-B", "-S", "-c", code, str(copy)], capture_output=True, text=True, timeout=bound(20))
    file, cached = done.stdout.split()
    assert file.startswith(str(copy)) and os.path.isfile(cached), "compiled, so that a runner needn't do it at each start"
    assert not any(path.stat().st_mode & 0o222 for path in copy.rglob("*") if path.is_dir())


def test_another_release_is_another_copy_and_a_damaged_one_is_made_again(tmp_path):
    package = tmp_path / "package"
    shutil.copytree(package_folder(), package, ignore=shutil.ignore_patterns("__pycache__"))
    one = ensure_sdk(tmp_path / "sdk", package)
    (package / "__init__.py").write_text("# another\n")
    two = ensure_sdk(tmp_path / "sdk", package)
    assert one != two
    damaged = two / "fornada_sdk/__init__.py"
    damaged.chmod(0o600)
    damaged.write_bytes(b"")
    assert ensure_sdk(tmp_path / "sdk", package) == two
    assert damaged.read_text() == "# another\n"
