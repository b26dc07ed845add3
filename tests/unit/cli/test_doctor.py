"""`fornada doctor` and its checks, on this machine and on machines made of files."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from fornada.cli.checks import capacity, kernel, software
from fornada.cli.checks.finding import Finding, Level
from fornada.cli.checks.machine import Machine
from tests.unit.cli.conftest import Cli, line
from tests.unit.cli.fake_node import FakeNode, say

NODE = {"main_pid": 1, "keeper_pid": 2, "control_pid": 3, "url": "http://h", "account": "local", "isolation": "none", "version": "0.1.0"}


def test_it_works_with_a_node(cli: Cli, node: FakeNode):
    node.on("GET", "/api/v1/nodes", say({"nodes": [NODE]}))
    result = cli("doctor")
    assert result.exit_code == 0, result.stdout
    assert "0.1.0 at http://h, isolation none" in result.stdout


def test_it_works_without_a_node(cli: Cli, nowhere: str):
    result = cli("doctor", url=nowhere)
    assert result.exit_code == 0, result.stdout
    assert f"no node answers at {nowhere}" in result.stdout
    assert "-> start one with 'fornada serve" in result.stdout


def test_it_says_that_models_are_not_confined(cli: Cli, nowhere: str):
    result = cli("doctor", url=nowhere)
    (said,) = [text for text in result.stdout.splitlines() if "isolation" in text]
    assert said.startswith("warn") and "auto means none in this release" in said


def test_json_holds_every_finding_with_its_advice(cli: Cli, nowhere: str):
    found = json.loads(cli("doctor", "--json", url=nowhere).stdout)["findings"]
    subjects = {finding["subject"] for finding in found}
    assert {"python", "uv", "isolation", "kernel", "user namespaces", "pid namespaces", "cgroups", "landlock", "cpu"} <= subjects
    assert {"disk", "data directory", "open files", "processes", "clock", "proxy", "certificates", "node"} <= subjects
    assert all(finding["advice"] for finding in found if finding["level"] != "ok")


def test_what_will_not_work_is_exit_code_1(cli: Cli, nowhere: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "nowhere.pem"))
    result = cli("doctor", url=nowhere)
    assert result.exit_code == 1
    assert line(result).startswith("fornada: this machine can't run a node as it is: certificates;")


def machine(root: Path, files: Mapping[str, str] | None = None, *, uid: int = 1000, environ: Mapping[str, str] | None = None) -> Machine:
    """A machine that consists of `files`: path -> text."""
    for name, text in (files or {}).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Machine(environ=environ or {}, data_dir=root / "data", root=root, uid=uid)


def by_subject(found: object) -> dict[str, Finding]:
    return {finding.subject: finding for finding in found}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "level"), [("6.18.44", Level.OK), ("5.9.0-rc1", Level.OK), ("5.8.18", Level.FAIL), ("4.19.0-26-amd64", Level.FAIL)]
)
def test_an_old_kernel_fails(tmp_path: Path, text: str, level: Level):
    (found,) = kernel.release(machine(tmp_path, {"proc/sys/kernel/osrelease": text + "\n"}))
    assert found.level is level


def test_user_namespaces_that_are_switched_off_are_named(tmp_path: Path):
    files = {"proc/self/ns/user": "", "proc/self/ns/pid": "", "proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n"}
    found = by_subject(kernel.namespaces(machine(tmp_path, files)))
    assert found["user namespaces"].level is Level.WARN
    assert "apparmor_restrict_unprivileged_userns = 1" in found["user namespaces"].seen
    assert found["pid namespaces"].level is Level.OK


def test_root_gets_a_pid_namespace(tmp_path: Path):
    found = by_subject(kernel.namespaces(machine(tmp_path, {"proc/self/ns/user": "", "proc/self/ns/pid": ""}, uid=0)))
    assert found["pid namespaces"].seen.startswith("used")


@pytest.mark.parametrize(
    ("files", "seen"),
    [
        ({"sys/fs/cgroup/cgroup.controllers": "cpu memory pids\n", "proc/self/cgroup": "0::/\n"}, "version 2 with cpu memory pids"),
        ({"proc/self/cgroup": "5:memory:/x\n3:cpu,cpuacct:/x\n"}, "version 1"),
        ({"proc/self/cgroup": "3:cpu,cpuacct:/x\n"}, "no memory controller"),
    ],
)
def test_both_kinds_of_cgroups_are_known(tmp_path: Path, files: dict[str, str], seen: str):
    (found,) = kernel.cgroups(machine(tmp_path, files))
    assert found.seen.startswith(seen)


MEMINFO = "MemTotal:       16777216 kB\nMemFree: 1 kB\n"


@pytest.mark.parametrize(
    ("files", "seen"),
    [
        ({"proc/self/cgroup": "0::/a/b\n"}, "16 GiB of memory"),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/memory.max": "4294967296\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
            },
            "4 GiB",
        ),
        ({"proc/self/cgroup": "7:memory:/host/path\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "3221225472\n"}, "3 GiB"),
        (
            {"proc/self/cgroup": "7:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"},
            "16 GiB of memory",
        ),
    ],
)
def test_memory_is_what_the_cgroup_allows(tmp_path: Path, files: dict[str, str], seen: str):
    found = by_subject(capacity.devices(machine(tmp_path, {"proc/meminfo": MEMINFO, **files})))
    assert seen in found["cpu"].seen
    assert found["cpu"].level is Level.OK


def test_little_memory_is_a_warning(tmp_path: Path):
    found = by_subject(capacity.devices(machine(tmp_path, {"proc/meminfo": "MemTotal: 1048576 kB\n"})))
    assert found["cpu"].level is Level.WARN


def test_a_gpu_is_seen_and_said_to_be_unused(tmp_path: Path):
    found = by_subject(
        capacity.devices(machine(tmp_path, {"proc/meminfo": MEMINFO, "proc/driver/nvidia/version": "NVRM version: 570\nGCC\n"}))
    )
    assert found["gpu"].seen == "NVRM version: 570"
    assert "places models on the CPU" in found["gpu"].advice


@pytest.mark.parametrize(
    ("environ", "subject", "level"),
    [
        ({"https_proxy": "http://p:1"}, "proxy", Level.WARN),
        ({"https_proxy": "http://p:1", "NO_PROXY": "example.org, localhost"}, "proxy", Level.OK),
        ({"SSL_CERT_FILE": "/nowhere/ca.pem"}, "certificates", Level.FAIL),
        ({"FORNADA_MIRROR": "/nowhere"}, "mirror", Level.FAIL),
        ({"FORNADA_MIRROR": "http://mirror"}, "mirror", Level.OK),
        ({"PIP_INDEX_URL": "http://user:secret@index"}, "package index", Level.OK),
    ],
)
def test_the_network_settings_are_checked_and_their_values_kept_back(tmp_path: Path, environ: dict[str, str], subject: str, level: Level):
    found = by_subject(software.network(machine(tmp_path, environ=environ)))
    assert found[subject].level is level
    assert "secret" not in str(found)
