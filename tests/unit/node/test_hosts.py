"""Which instances this control plane believes to share which process."""

import itertools
import os
from pathlib import Path

import pytest

from fornada.core.names import AccountId, ModelName, VersionDigest
from fornada.core.policy.packing import Bound
from fornada.core.ports import Provisioned, Version
from fornada.core.specs import spec_from_table
from fornada.node import shelf
from fornada.node.hosts import Alone, Hosts, Seat, Sharing

MIB = 1024**2
USE = Sharing(device="cpu", crashes=0, peak_bytes=MIB)


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    numbers = itertools.count(1)
    return Hosts(bound=Bound(2, 200 * MIB), scratch=tmp_path / "scratch", new_suffix=lambda: str(next(numbers)))


def version(*, account: str = "local", **tables: object) -> Version:
    spec = spec_from_table({"name": "@t/m", "engine": "onnx", **tables})
    return Version(ModelName("@t/m"), VersionDigest("0" * 64), AccountId(account), spec, "/nowhere", "", 0.0)


def seat(hosts: Hosts, instance: str, *, of: Version | None = None, environment: str = "/e", use: Sharing = USE, sdk: str = "/s") -> str:
    found = hosts.find(instance, of or version(), Provisioned("/p", environment, "/nowhere", {}, sdk), use)
    assert isinstance(found, Seat), found
    assert Path(found.scratch).is_dir() and Path(found.shelf, instance).is_dir()
    return found.host


def test_a_process_is_filled_before_another_is_made(hosts: Hosts):
    assert [seat(hosts, name) for name in "abc"] == ["host-1", "host-1", "host-2"]
    assert (hosts.others("a"), hosts.others("c"), hosts.others("nobody")) == (1, 0, 0)


def test_accounts_environments_and_releases_never_meet(hosts: Hosts):
    places = [
        seat(hosts, "a"),
        seat(hosts, "b", of=version(account="other")),
        seat(hosts, "c", environment="/other"),
        seat(hosts, "d", sdk="/other"),
    ]
    assert len(set(places)) == 4
    assert seat(hosts, "e") == places[0]


def test_the_last_one_s_end_is_its_process_s_and_its_name_is_never_used_again(hosts: Hosts):
    first = seat(hosts, "a")
    seat(hosts, "b")
    assert hosts.left("a", well=True) == f"{first}/models/a"
    assert hosts.left("b", well=True) == first
    assert hosts.left("b", well=True) == ""
    assert seat(hosts, "c") != first


def test_nobody_joins_a_process_that_died_though_not_every_end_has_been_told(hosts: Hosts):
    first = seat(hosts, "a")
    seat(hosts, "b")
    hosts.left("a", well=False)
    assert seat(hosts, "a2") != first


def test_what_is_still_loading_counts_as_it_is_expected(hosts: Hosts):
    seat(hosts, "a", use=USE._replace(peak_bytes=60 * MIB))
    assert seat(hosts, "b", use=USE._replace(peak_bytes=70 * MIB)) == "host-1"
    hosts.left("b", well=True)
    hosts.loaded("a")
    hosts.spawned("a", pid=0)
    assert seat(hosts, "c", use=USE._replace(peak_bytes=72 * MIB)) == "host-1"
    hosts.left("c", well=True)
    hosts.adopted("d", host="host-9", group="g", pid=1)
    assert hosts.left("d", well=True) == "host-9"


def test_what_a_member_reads_is_linked_beside_its_host_s_other_members(hosts: Hosts, tmp_path: Path):
    folder, weights = tmp_path / "folder", tmp_path / "weights.onnx"
    (folder / "example").mkdir(parents=True)
    (folder / "example" / "request.json").write_text("{}")
    weights.write_bytes(b"w" * 1000)
    before = os.umask(0o077)  # the node's own
    try:
        found = hosts.find("a", version(), Provisioned("/p", "/e", str(folder), {"weights/m.onnx": str(weights)}, "/s"), USE)
    finally:
        os.umask(before)
    assert isinstance(found, Seat)
    below = [path for path in Path(found.shelf).rglob("*") if path.is_dir()]
    assert all(path.stat().st_mode & 0o055 == 0o055 for path in [Path(found.shelf), *below]), "a model may run as another user"
    there = found.provisioned
    assert Path(there.folder, "example", "request.json").read_text() == "{}"
    linked = Path(there.artifacts["weights/m.onnx"])
    assert linked.name == "weights.onnx" and linked.stat().st_ino == weights.stat().st_ino
    assert all(Path(path).is_relative_to(Path(found.shelf, "a")) for path in (there.folder, linked))
    assert not Path(found.shelf).is_relative_to(found.scratch), "what a member may write to holds nobody's weights"
    for number in range(shelf.FILES_MOST + 1):
        (folder / str(number)).touch()
    alone = hosts.find("b", version(), Provisioned("/p", "/e", str(folder), {}, "/s"), USE)
    assert isinstance(alone, Alone) and f"{shelf.FILES_MOST} files" in alone.because


def test_a_model_that_fits_no_process_has_its_own(hosts: Hosts):
    provisioned = Provisioned("/p", "/e", "/nowhere", {}, "/s")
    assert isinstance(hosts.find("a", version(), provisioned, USE._replace(peak_bytes=100 * MIB)), Alone)
    assert isinstance(hosts.find("a", version(engine="python"), provisioned, USE), Alone)
    assert hosts.left("a", well=True) == ""
