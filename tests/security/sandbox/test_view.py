"""What the parent opens for an instance: an interpreter is found where it lies, and nothing that lies beside it."""

import os
from pathlib import Path

import pytest

from fornada_sdk.sandbox import view
from fornada_sdk.sandbox.plan import Access, Grant
from tests.security.sandbox.cage import Cage
from tests.security.sandbox.test_walls import attempt


def installed(prefix: Path, version: str = "3.11") -> Path:
    """Something that looks like a Python."""
    for folder in ("bin", f"lib/python{version}", "include", "share/keyrings"):
        (prefix / folder).mkdir(parents=True)
    (prefix / "lib" / f"python{version}" / "os.py").touch()
    python = prefix / "bin" / f"python{version}"
    python.touch()
    return python


def environment(folder: Path, python: Path) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(f"home = {python.parent}\nversion_info = 3.11.7\n")
    (folder / "bin" / "python").symlink_to(python)
    (folder / "bin" / "python3").symlink_to("python")
    return folder / "bin" / "python3"


def test_an_interpreters_parts_are_seen_and_not_what_lies_beside_them(tmp_path: Path):
    prefix = tmp_path / ".local"
    python = environment(tmp_path / "env", installed(prefix))
    assert sorted(view.interpreter(str(python))) == [str(prefix / part) for part in ("bin", "include", "lib")]


def test_an_interpreter_behind_a_link_to_its_folder_is_seen_under_both_names(tmp_path: Path):
    """As uv lays them out: environments name the minor version, whose folder is a link to a patch release's."""
    real, named = tmp_path / "cpython-3.11.9", tmp_path / "cpython-3.11"
    installed(real)
    named.symlink_to(real.name)
    python = environment(tmp_path / "env", named / "bin" / "python3.11")
    found = view.interpreter(str(python))
    assert sorted(found) == sorted(str(prefix / part) for prefix in (real, named) for part in ("bin", "include", "lib"))


def test_an_interpreter_that_was_copied_into_its_environment_is_found_by_its_home(tmp_path: Path):
    prefix = tmp_path / "python"
    python = environment(tmp_path / "env", installed(prefix))
    python.unlink()
    python.write_bytes(b"copied")
    assert sorted(view.interpreter(str(python))) == [str(prefix / part) for part in ("bin", "include", "lib")]


def test_a_python_of_the_system_needs_nothing_more(tmp_path: Path):
    assert view.interpreter("/usr/bin/python3") == []
    assert view.interpreter(str(tmp_path / "missing")) == []


def test_a_link_in_a_circle_ends(tmp_path: Path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert view.interpreter(str(tmp_path / "a")) == []


def test_grants_on_the_host_name_only_what_is_there(tmp_path: Path):
    wanted = Grant(str(tmp_path), Access.WRITE)
    granted = view.host_grants([wanted])
    assert granted.refuse_tcp
    assert wanted in granted.grants
    assert all(os.path.exists(grant.path) for grant in granted.grants)
    writable = [grant.path for grant in granted.grants if grant.access is Access.WRITE]
    assert writable == [str(tmp_path)]
    below = ("/", "/home", "/root", "/tmp", "/dev", "/dev/shm", "/proc", "/etc", "/var")
    assert not {grant.path for grant in granted.grants} & set(below)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_what_cant_be_opened_is_named_and_nothing_stays_open(tmp_path: Path):
    before = len(os.listdir("/proc/self/fd"))
    missing = str(tmp_path / "missing")
    with pytest.raises(FileNotFoundError) as failed:
        view.open_view([Grant(missing, Access.READ)], over={}, in_memory={}, temporary_bytes=1 << 20, shared_bytes=1 << 20)
    assert failed.value.filename == missing
    (tmp_path / "link").symlink_to("/etc")
    with pytest.raises(OSError):
        # A model could have put a link where it may write; what is mounted writable is never the link's target.
        view.open_view(
            [Grant(str(tmp_path / "link" / "."), Access.WRITE), Grant(missing, Access.READ)],
            over={},
            in_memory={},
            temporary_bytes=1,
            shared_bytes=1,
        )
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_folder_inside_another_is_put_there_whatever_the_order(caged: Cage):
    outer = caged.folder("outer")
    outer.chmod(0o755)
    inner = outer / "inner"
    inner.mkdir()
    os.chown(inner, caged.uid, -1)
    code = attempt("open(sys.argv[1] + '/inner/x', 'w').close(); return 'written'")
    for files in ([(outer, "read"), (inner, "write")], [(inner, "write"), (outer, "read")]):
        assert caged.run(code, str(outer), files=files).said == "written"
    assert caged.run(code, str(outer), files=[(outer, "read"), (inner, "read")]).said == "EROFS"
