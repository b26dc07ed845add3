"""`file:` sources: what may be named, and what is read in the end."""

import hashlib
import os
from pathlib import Path

import pytest

from fornada.core.errors import LoadFailed
from fornada.node.provision.download import SourceFailed
from fornada.node.provision.files import ANY, Files

CONTENT = b"weights"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def allowed(tmp_path):
    """A folder that is allowed, beside one that isn't."""
    for folder in ("allowed/deep", "other"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "w").write_bytes(CONTENT)
    return tmp_path / "allowed"


def content(files, path):
    with files.opened(str(path)) as same:
        return same.read_bytes()


def refused(files, path):
    with pytest.raises(SourceFailed) as refusal, files.opened(str(path)):
        pass
    return str(refusal.value)


def test_only_what_lies_below_an_allowed_folder_is_read(allowed, tmp_path):
    files = Files([str(allowed)], private=tmp_path / "data")
    assert content(files, allowed / "deep/w") == CONTENT
    for path in (
        tmp_path / "other/w",
        allowed / "../other/w",
        f"{allowed}-not/w",
        "/etc/passwd",
        "/proc/self/environ",
        "allowed/deep/w",
        "",
    ):
        assert "no such file" in refused(files, path)


def test_a_link_leads_nowhere_out_of_it(allowed, tmp_path):
    files = Files([str(allowed)], private=tmp_path / "data")
    (allowed / "out").symlink_to(tmp_path / "other/w")
    (allowed / "folder").symlink_to(tmp_path / "other")
    (allowed / "inside").symlink_to("deep/w")
    for path in (allowed / "out", allowed / "folder/w"):
        refused(files, path)
    assert content(files, allowed / "inside") == CONTENT
    link = tmp_path / "link"
    link.symlink_to(allowed)
    assert content(Files([str(link)], private=tmp_path / "data"), allowed / "deep/w") == CONTENT, "the operator may name a link"


def test_the_file_that_was_checked_is_the_one_that_is_read(allowed, tmp_path):
    files = Files([str(allowed)], private=tmp_path / "data")
    (tmp_path / "other/w").write_bytes(b"secret")
    with files.opened(str(allowed / "deep/w")) as same:
        (allowed / "deep/w").unlink()
        (allowed / "deep/w").symlink_to(tmp_path / "other/w")
        assert same.read_bytes() == CONTENT


def test_what_is_there_looks_like_what_isn_t(allowed, tmp_path):
    files = Files([str(allowed)], private=tmp_path / "data")
    assert refused(files, tmp_path / "other/w") == refused(files, tmp_path / "other/nothing")


@pytest.mark.parametrize(
    "place", ["/proc/self/environ", "/proc/self/mem", "/sys/kernel/uevent_seqnum", "/dev/zero", "/etc", "/nowhere", "/\0"]
)
def test_kernel_files_devices_and_folders_are_no_files_even_where_all_are_allowed(place, tmp_path):
    assert refused(Files(ANY, private=tmp_path / "data"), place) == "there is no such file"


def test_the_node_s_own_data_is_never_named(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/store.sqlite").write_bytes(b"x")
    (tmp_path / "link").symlink_to("data")
    for roots in (ANY, [str(tmp_path)], [str(tmp_path / "data")]):
        for path in ("data/store.sqlite", "link/store.sqlite"):
            assert "no such file" in refused(Files(roots, private=tmp_path / "data"), tmp_path / path)


def test_where_none_is_allowed_the_refusal_says_so(allowed, tmp_path):
    assert "allow_files lists no directory" in refused(Files([], private=tmp_path / "data"), allowed / "deep/w")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_looks_like_what_isn_t_there(allowed, tmp_path):
    (allowed / "deep/w").chmod(0)
    assert "no such file" in refused(Files(ANY, private=tmp_path / "data"), allowed / "deep/w")


async def test_nothing_is_told_of_a_file_that_isn_t_the_one(provisioner, version_of, steps, tmp_path):
    other = tmp_path / "pin"
    other.write_bytes(b"1234")
    wanted = version_of(artifacts=[{"path": "w", "sha256": SHA256, "source": [f"file:{other}"]}])
    with pytest.raises(LoadFailed) as failure:
        await provisioner.artifacts(wanted, steps)
    assert "holds another file" in failure.value.message
    assert hashlib.sha256(b"1234").hexdigest()[:6] not in failure.value.message


async def test_the_setting_decides(provisioners, version_of, steps, allowed, tmp_path):
    def wanted(path: Path):
        return version_of(artifacts=[{"path": "w", "sha256": SHA256, "source": [f"file:{path}"]}])

    with pytest.raises(LoadFailed, match="allow_files"):
        await provisioners(allow_files=[str(allowed)]).artifacts(wanted(tmp_path / "other/w"), steps)
    with pytest.raises(LoadFailed, match="allow_files lists no directory"):
        await provisioners(allow_files=[]).artifacts(wanted(allowed / "deep/w"), steps)
    assert await provisioners(allow_files=[str(allowed)]).artifacts(wanted(allowed / "deep/w"), steps)
