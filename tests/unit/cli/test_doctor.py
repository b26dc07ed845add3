"""`fornada doctor` and its checks, on this machine and on machines made of files."""

import dataclasses
import json
import re
import secrets
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from fornada.app.backup import LAST, LastBackup, backup
from fornada.app.isolation import described
from fornada.app.keys import keys_of
from fornada.cli.checks import capacity, kernel, software, upkeep
from fornada.cli.checks.finding import Finding, Level
from fornada.cli.checks.machine import Machine
from fornada.core.keys import ROLES, new_key
from fornada.core.names import AccountId
from fornada.keeper.levels import AUTO, Facts, Feature, Switch
from fornada.store.sqlite import SqliteStore
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


def test_it_says_how_models_are_confined(cli: Cli, nowhere: str):
    result = cli("doctor", url=nowhere)
    (said,) = [text for text in result.stdout.splitlines() if re.match(r"\w+ +isolation ", text)]
    assert re.search(r"isolation +auto (means (full|namespaces|landlock|none) |can't be had here: )", said)


def test_an_isolation_that_the_environment_asks_for_is_looked_at(cli: Cli, nowhere: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FORNADA_ISOLATION", "none")
    isolation = json.loads(cli("doctor", "--json", url=nowhere).stdout)["isolation"]
    assert (isolation["wanted"], isolation["used"]) == ("none", "none")
    monkeypatch.setenv("FORNADA_ISOLATION", "iron")
    assert json.loads(cli("doctor", "--json", url=nowhere).stdout)["isolation"]["wanted"] == "auto", "serve refuses it by itself"


def test_json_says_what_models_get_and_what_is_missing_for_more(cli: Cli, nowhere: str):
    isolation = json.loads(cli("doctor", "--json", url=nowhere).stdout)["isolation"]
    assert isolation["wanted"] == "auto"
    assert isolation["used"] == (isolation["offered"] if isolation["offered"] != "none" else None)
    assert isolation["offered"] in ("full", "namespaces", "landlock", "none")
    assert (isolation["offered"] == "full") == (isolation["missing"] == [])
    assert all(one.keys() == {"what", "why", "advice"} for one in isolation["missing"])


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


ROOT = Facts(
    uid=0, privileged=True, uids=2**32 - 1, kernel=(6, 18), landlock_abi=7, cgroup_version=2, controllers=("cpu", "memory", "pids")
)
UNTRIED = dict.fromkeys([Feature.PID_NAMESPACE, Feature.MOUNT_NAMESPACE, Feature.OWN_PROC, Feature.OWN_ROOT], "")
USER = Facts(
    uid=1000,
    privileged=False,
    kernel=(6, 8),
    landlock_abi=4,
    refused={Feature.USER_NAMESPACE: "can't write uid_map: Operation not permitted", **UNTRIED, Feature.CGROUPS: "may not be written"},
    switches={Switch.APPARMOR_USERNS: 1},
    cgroup_advice="run it under systemd-run",
)
OLD = dataclasses.replace(
    ROOT, kernel=(5, 4), landlock_abi=0, refused=dict.fromkeys([Feature.MOUNT_DESCRIPTORS, Feature.LANDLOCK], "not implemented")
)


def seen_and_advised(facts: Facts, *, wanted: str = AUTO) -> dict[str, Finding]:
    found = described(wanted, facts)
    return by_subject([*kernel.isolation(found), *kernel.features(found)])


def test_a_machine_that_offers_everything_has_nothing_to_change():
    found = seen_and_advised(ROOT)
    assert {finding.level for finding in found.values()} == {Level.OK}
    assert found["isolation"].seen.startswith("auto means full here: models see neither")
    assert found["cgroups"].seen == "version 2 with cpu, memory, pids"
    assert found["landlock"].seen == "ABI 7"
    assert found["user namespaces"].seen == "not needed by root"


def test_a_path_that_models_can_t_pass_fails(tmp_path: Path):
    tmp_path.chmod(0o700)
    (found,) = kernel.reach(machine(tmp_path, {}), described("landlock", ROOT))
    assert found.level is Level.FAIL and found.subject == "paths of models"
    assert str(tmp_path) in found.seen and "chmod o+x" in found.advice
    (found,) = kernel.reach(machine(tmp_path, {}), described("full", ROOT))
    assert found.level is Level.OK
    (found,) = kernel.reach(machine(tmp_path, {}), described("none", ROOT))
    assert found.level is Level.OK


def test_each_line_that_keeps_it_from_more_says_what_to_change():
    found = seen_and_advised(USER)
    assert found["isolation"].level is Level.WARN
    assert found["isolation"].seen.startswith("auto means landlock here: ")
    assert "user namespaces, cgroups" in found["isolation"].advice
    assert found["user namespaces"].seen == "not available: can't write uid_map: Operation not permitted"
    assert "AppArmor profile with 'userns,'" in found["user namespaces"].advice
    assert found["cgroups"].advice == "run it under systemd-run"
    assert found["other namespaces"].level is Level.OK
    assert "not tried" in found["other namespaces"].seen
    assert found["landlock"].level is Level.OK


def test_a_machine_that_can_confine_nothing_fails_and_says_why():
    found = seen_and_advised(OLD)
    assert found["isolation"].level is Level.FAIL
    assert found["isolation"].seen == "auto can't be had here: landlock: not implemented"
    assert found["isolation"].advice == "it needs Linux 5.13 or newer"
    assert found["own file system"].advice == "it needs Linux 5.12 or newer"


def test_a_level_that_was_asked_for_and_can_not_be_had_fails():
    found = seen_and_advised(USER, wanted="full")
    assert found["isolation"].level is Level.FAIL
    assert found["isolation"].seen.startswith("full can't be had here: user namespaces: can't write uid_map")
    assert "run it under systemd-run" in found["isolation"].advice


def test_none_that_was_asked_for_is_a_warning():
    found = seen_and_advised(ROOT, wanted="none")
    assert found["isolation"].level is Level.WARN
    assert found["isolation"].seen.startswith("none, as was asked for: ")


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


def test_it_says_how_old_the_last_backup_is(tmp_path: Path):
    here = machine(tmp_path)
    assert not [*upkeep.backups(here), *upkeep.keys(here)], "no node has worked here: there is nothing to lose"
    here.data_dir.mkdir()
    SqliteStore(here.data_dir / "store.sqlite").close()
    assert [finding.level for finding in upkeep.backups(here)] == [Level.WARN]
    backup(here.data_dir, tmp_path / "copy", replace=False, told=lambda done, of: None)
    (found,) = upkeep.backups(here)
    assert found.level is Level.OK and found.seen == f"{tmp_path / 'copy'}, 0 hours ago"
    last = msgspec.json.encode(LastBackup(at=time.time() - 9 * upkeep.DAY_S, path="/backups/old"))
    (here.data_dir / LAST).write_bytes(last)
    (found,) = upkeep.backups(here)
    assert found.level is Level.WARN and found.seen == "/backups/old, 9 days ago"


def test_it_says_whether_a_key_is_needed(tmp_path: Path):
    here = machine(tmp_path)
    key, _ = new_key(AccountId("a"), ROLES["user"], now=0.0, chance=secrets.token_bytes)
    with keys_of(here.data_dir) as keys:
        (found,) = upkeep.keys(here)
        assert found.seen.startswith("none: open to everybody on this machine")
        keys.put_key(key)
        (found,) = upkeep.keys(here)
        assert found.seen == "every request needs one"
