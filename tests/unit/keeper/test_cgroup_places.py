"""Where groups can be made, on machines made of files; and what version 2's files are given and say."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from fornada.keeper.cgroups import v1, v2
from fornada.keeper.cgroups.files import CgroupError
from fornada.keeper.cgroups.group import Bounds, quota_us
from fornada.keeper.cgroups.place import NoPlace, Place, Version, find
from fornada.keeper.cgroups.tree import node_name
from tests.bounds import bound

NODE = "fornada-0123456789abcdef"
V1 = "\n".join(f"3{i} 31 0:3{i} / /sys/fs/cgroup/{name} rw,relatime - cgroup cgroup rw,{name}" for i, name in enumerate(["memory", "pids"]))
V1_TOGETHER = "40 31 0:40 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct"
V2 = "41 31 0:38 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
V2_BESIDE = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"
CORE = {"cgroup.procs": "", "cgroup.subtree_control": "", "cgroup.controllers": "cpuset cpu io memory pids", "cgroup.type": "domain"}


def machine(root: Path, *, mounts: list[str], membership: str, folders: Mapping[str, Mapping[str, str]]) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text("22 27 0:21 / /proc rw - proc proc rw\n" + "\n".join(mounts) + "\n")
    (root / "proc/self/cgroup").write_text(membership)
    for folder, files in folders.items():
        (root / folder).mkdir(parents=True)
        for name, text in files.items():
            (root / folder / name).write_text(text + "\n")
    return root


def place(root: Path, node: str = NODE) -> Place:
    found = find(node, root=root)
    assert isinstance(found, Place), found
    return found


def test_version_1_in_a_service(tmp_path: Path):
    folders = ["memory/a/b", "pids/a", "cpu,cpuacct/"]
    root = machine(
        tmp_path,
        mounts=[V1, V1_TOGETHER, V2_BESIDE],
        membership="9:cpu,cpuacct:/\n8:pids:/a\n4:memory:/a/b\n0::/a\n",
        folders={f"sys/fs/cgroup/{name}": {} for name in folders},
    )
    found = place(root)
    assert found.version is Version.V1
    at = {name: folder.relative_to(root / "sys/fs/cgroup") for name, folder in found.folders.items()}
    assert at == {"memory": Path("memory/a/b"), "pids": Path("pids/a"), "cpu": Path("cpu,cpuacct"), "cpuacct": Path("cpu,cpuacct")}


def test_version_1_where_only_the_containers_own_part_is_mounted(tmp_path: Path):
    root = machine(
        tmp_path,
        mounts=[V1.replace(" / ", " /docker/42 ")],
        membership="8:pids:/docker/42\n4:memory:/docker/42/inner\n",
        folders={"sys/fs/cgroup/memory/inner": {}, "sys/fs/cgroup/pids": {}},
    )
    assert place(root).folders == {"memory": root / "sys/fs/cgroup/memory/inner", "pids": root / "sys/fs/cgroup/pids"}


def test_version_2_with_delegation(tmp_path: Path):
    own = "sys/fs/cgroup/user.slice/run-1.scope"
    root = machine(tmp_path, mounts=[V2], membership="0::/user.slice/run-1.scope\n", folders={own: CORE})
    found = place(root)
    assert found.version is Version.V2
    assert found.controllers == ("cpu", "memory", "pids")
    assert set(found.folders.values()) == {root / own}


def test_version_2_from_within_the_nodes_own_leaf(tmp_path: Path):
    own = "sys/fs/cgroup/s.service"
    root = machine(tmp_path, mounts=[V2], membership=f"0::/s.service/{NODE}/keeper\n", folders={own: CORE, f"{own}/{NODE}/keeper": CORE})
    assert set(place(root).folders.values()) == {root / own}
    assert set(place(root, "fornada-another").folders.values()) == {root / own / NODE / "keeper"}


def test_systemds_own_cgroup_is_not_taken_by_root(tmp_path: Path):
    own = "sys/fs/cgroup/user.slice/session-3.scope"
    root = machine(tmp_path, mounts=[V2], membership="0::/user.slice/session-3.scope\n", folders={own: CORE, "run/systemd/system": {}})
    found = find(NODE, root=root)
    if os.geteuid() == 0:
        assert isinstance(found, NoPlace)
        assert "belongs to systemd" in found.why and "systemd-run --scope -p Delegate=yes" in found.advice
    else:
        assert isinstance(found, Place), "what an ordinary user may write has been delegated to them"
    os.setxattr(root / own, "user.delegate", b"1")
    assert isinstance(find(NODE, root=root), Place)


@pytest.mark.parametrize(
    ("mounts", "membership", "folders", "why"),
    [
        ([], "", {}, "no cgroup file system is mounted"),
        ([V2], "0::/a\n", {"sys/fs/cgroup/a": {**CORE, "cgroup.controllers": "cpu pids"}}, "offers no memory controller"),
        ([V2], "0::/a\n", {"sys/fs/cgroup/a": {**CORE, "cgroup.controllers": ""}}, "offers no memory, pids controller"),
        ([V2], "0::/../outside\n", {"sys/fs/cgroup": CORE}, "lies outside of what is mounted"),
        ([V2], "0::/a\n", {"sys/fs/cgroup/a": {**CORE, "cgroup.procs": "7\n0"}}, "holds other processes (7) beside the node"),
        ([V1, V2_BESIDE], "4:memory:/a\n0::/\n", {"sys/fs/cgroup/memory/a": {}, "sys/fs/cgroup/unified": CORE}, ""),
    ],
    ids=["nothing", "half", "undelegated", "outside", "strangers", "version 1 lacks pids, version 2 has both"],
)
def test_where_no_group_can_be_made_the_reason_is_told(
    tmp_path: Path, mounts: list[str], membership: str, folders: Mapping[str, Mapping[str, str]], why: str
):
    found = find(NODE, root=machine(tmp_path, mounts=mounts, membership=membership, folders=folders))
    if why:
        assert isinstance(found, NoPlace)
        assert why in found.why and found.advice
    else:
        assert isinstance(found, Place) and found.version is Version.V2


def test_processes_that_will_move_by_themselves_are_no_strangers(tmp_path: Path):
    root = machine(tmp_path, mounts=[V2], membership="0::/a\n", folders={"sys/fs/cgroup/a": {**CORE, "cgroup.procs": "7"}})
    assert isinstance(find(NODE, root=root, ours=[7]), Place)


# ---- the files of version 2

MEMORY = {
    "memory.max": "max",
    "memory.swap.max": "max",
    "memory.oom.group": "0",
    "memory.current": "0",
    "memory.stat": "",
    "pids.max": "max",
}
EVENTS = "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {**MEMORY, "memory.events": EVENTS, "cpu.max": "max 100000", "cpu.stat": "usage_usec 1500000\nuser_usec 1"}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "cgroup.procs").write_text("")
    return tmp_path


def given(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_text() for name in ("memory.max", "memory.swap.max", "cpu.max", "pids.max")}


def test_version_2_is_given_bounds(folder: Path):
    group = v2.GroupV2("m", folder)
    for name in given(folder):
        (folder / name).write_text("")  # a file of the kernel's takes each write as a whole; this one keeps what was behind it
    group.bound(Bounds(memory_bytes=1 << 30, cpus=1.5, pids=64))
    assert given(folder) == {"memory.max": "1073741824", "memory.swap.max": "0", "cpu.max": "150000 100000", "pids.max": "64"}
    group.close()


def test_version_2_without_bounds(folder: Path):
    group = v2.GroupV2("m", folder)
    for name in given(folder):
        (folder / name).write_text("")
    group.bound(Bounds())
    assert given(folder) == {"memory.max": "max", "memory.swap.max": "max", "cpu.max": "max 100000", "pids.max": "max"}
    assert (folder / "memory.oom.group").read_text() == "1", "half a model is of no use"
    group.close()


def test_version_2_says_what_it_uses(folder: Path):
    (folder / "memory.current").write_text("5000\n")
    (folder / "memory.stat").write_text("anon 100\nfile 3000\ninactive_file 2000\nactive_file 1000\n")
    (folder / "cgroup.procs").write_text("12\n0\n13\n")
    group = v2.GroupV2("m", folder)
    assert group.memory_bytes() == 3000
    assert group.oom_kills() == 2
    assert group.cpu_s() == 1.5
    assert group.pids() == [12, 13]
    group.close()


def test_without_a_memory_controller_there_is_no_event(tmp_path: Path):
    (tmp_path / "cgroup.procs").write_text("")
    group = v2.GroupV2("m", tmp_path)
    group.bound(Bounds(memory_bytes=1, cpus=1, pids=1))
    assert (group.oom, group.oom_kills(), group.memory_bytes()) == (-1, 0, 0)


def test_kernels_without_cgroup_kill_stop_forks_and_then_kill_each(folder: Path):
    with subprocess.Popen(["sleep", "60"]) as child:
        (folder / "cgroup.procs").write_text(f"{child.pid}\n0\n")
        v2.kill(folder)
        assert child.wait(bound(10)) == -9
    assert (folder / "pids.max").read_text().startswith("0")


def test_what_is_no_number_names_the_file(tmp_path: Path):
    (tmp_path / "cpuacct.usage").write_text("much")
    with pytest.raises(CgroupError, match=r"cpuacct.usage holds 'much' and no number"):
        v1.GroupV1("m", {"cpuacct": tmp_path}).cpu_s()


@pytest.mark.parametrize(("cpus", "us"), [(1, 100_000), (0.25, 25_000), (3.5, 350_000), (0.0001, 1_000)])
def test_a_share_of_the_cpu_is_a_quota_that_the_kernel_takes(cpus: float, us: int):
    assert quota_us(cpus) == us


def test_a_nodes_name_is_its_data_directorys(tmp_path: Path):
    one, two, link = tmp_path / "one", tmp_path / "two", tmp_path / "link"
    one.mkdir()
    two.mkdir()
    link.symlink_to(one)
    assert node_name(one) == node_name(link) != node_name(two)
    assert len(node_name(one)) == len("fornada-node-") + 16
