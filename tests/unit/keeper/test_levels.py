"""Which level a machine gives, and what it is told to do for more: by a table of machines."""

import dataclasses
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fornada.keeper.levels import AUTO, Chosen, Facts, Feature, Level, Refused, Switch, best, choose, missing, needs

NOT_PERMITTED = "Operation not permitted"
READ_ONLY = {"cgroup_advice": "a container's cgroups are read-only unless ..."}
NO_DELEGATION = {"cgroup_advice": "run the node in a scope of its own: systemd-run --user --scope -p Delegate=yes fornada serve"}
UNTRIED = dict.fromkeys(
    [
        *(Feature.PID_NAMESPACE, Feature.MOUNT_NAMESPACE, Feature.NETWORK_NAMESPACE, Feature.IPC_NAMESPACE, Feature.UTS_NAMESPACE),
        *(Feature.CGROUP_NAMESPACE, Feature.MOUNT_DESCRIPTORS, Feature.OWN_PROC, Feature.OWN_ROOT, Feature.INNER_USER_NAMESPACE),
    ],
    "",
)
ROOT = Facts(uid=0, privileged=True, kernel=(6, 18), landlock_abi=7, cgroup_version=1, controllers=("cpu", "memory", "pids"))
USER = Facts(
    uid=1001,
    privileged=False,
    kernel=(6, 18),
    landlock_abi=7,
    refused={Feature.CGROUPS: "/sys/fs/cgroup/a may not be written by uid 1001"},
    **NO_DELEGATION,  # type: ignore[arg-type]
)
NO_GROUPS = {Feature.CGROUPS: "/sys/fs/cgroup is mounted read-only"}


def user(refused: Mapping[Feature, str], **others: object) -> Facts:
    return dataclasses.replace(USER, refused={**USER.refused, **refused}, **others)  # type: ignore[arg-type]


def no_users(why: str, **others: object) -> Facts:
    return user({**UNTRIED, Feature.USER_NAMESPACE: why}, **others)


OLD = {Feature.MOUNT_DESCRIPTORS: "mount_setattr: Function not implemented", Feature.LANDLOCK: "landlock_create_ruleset: not implemented"}

MACHINES = {
    "this machine as root": (ROOT, Level.FULL, []),
    "this machine as a user": (
        USER,
        Level.NAMESPACES,
        ["cgroups: /sys/fs/cgroup/a may not be written by uid 1001; run the node in a scope"],
    ),
    "version 2, delegated to a user": (
        dataclasses.replace(USER, refused={}, cgroup_version=2, controllers=("memory", "pids")),
        Level.FULL,
        [],
    ),
    "root where user namespaces are off": (
        dataclasses.replace(ROOT, refused={Feature.INNER_USER_NAMESPACE: NOT_PERMITTED}, switches={Switch.MAX_USER_NAMESPACES: 0}),
        Level.FULL,
        [],
    ),
    "Docker's defaults as root": (
        Facts(
            uid=0,
            privileged=False,
            kernel=(6, 1),
            landlock_abi=2,
            contained=True,
            refused={**UNTRIED, Feature.USER_NAMESPACE: f"unshare: {NOT_PERMITTED}", **NO_GROUPS},
            **READ_ONLY,  # type: ignore[arg-type]
        ),
        Level.LANDLOCK,
        ["user namespaces: unshare: Operation not permitted; start the container with a seccomp profile", "cgroups: "],
    ),
    "Docker without its filter as a user": (
        user({Feature.OWN_PROC: f"mount: {NOT_PERMITTED}", **NO_GROUPS}, contained=True, **READ_ONLY),
        Level.LANDLOCK,
        ["an own /proc: mount: Operation not permitted; start the container with --security-opt systempaths=unconfined", "cgroups: "],
    ),
    "Docker's defaults as a user": (
        no_users(f"unshare: {NOT_PERMITTED}", contained=True),
        Level.LANDLOCK,
        ["user namespaces: unshare: Operation not permitted; start the container with a seccomp profile", "cgroups: "],
    ),
    "Ubuntu with AppArmor": (
        no_users(f"can't write '1001 1001 1' to /proc/self/uid_map: {NOT_PERMITTED}", switches={Switch.APPARMOR_USERNS: 1}),
        Level.LANDLOCK,
        [
            "user namespaces: can't write '1001 1001 1' to /proc/self/uid_map: Operation not permitted; give the node's Python an AppArmor",
            "",
        ],
    ),
    "Ubuntu with AppArmor that takes the rights inside": (
        user({Feature.MOUNT_NAMESPACE: f"mount: {NOT_PERMITTED}"}, switches={Switch.APPARMOR_USERNS: 1}),
        Level.LANDLOCK,
        ["mount namespaces: mount: Operation not permitted; give the node's Python an AppArmor profile", "cgroups: "],
    ),
    "Ubuntu with AppArmor as root": (
        dataclasses.replace(ROOT, switches={Switch.APPARMOR_USERNS: 1}),
        Level.FULL,
        [],
    ),
    "no user namespaces, by Debian's switch": (
        no_users(f"unshare: {NOT_PERMITTED}", switches={Switch.USERNS_CLONE: 0, Switch.MAX_USER_NAMESPACES: 96365}),
        Level.LANDLOCK,
        ["user namespaces: unshare: Operation not permitted; sysctl -w kernel.unprivileged_userns_clone=1, or run the node as root", ""],
    ),
    "no user namespaces, by their number": (
        no_users("unshare: No space left on device", switches={Switch.MAX_USER_NAMESPACES: 0}),
        Level.LANDLOCK,
        ["user namespaces: unshare: No space left on device; sysctl -w user.max_user_namespaces=10000, or run the node as root", ""],
    ),
    "Linux 5.4 as root": (
        dataclasses.replace(ROOT, kernel=(5, 4), refused=OLD, landlock_abi=0),
        Level.NONE,
        ["open_tree and mount_setattr: mount_setattr: Function not implemented; it needs Linux 5.12 or newer"],
    ),
    "Linux 5.10 as a user": (user(OLD, kernel=(5, 10), landlock_abi=0), Level.NONE, ["open_tree and mount_setattr: ", "cgroups: "]),
    "Linux 6.1 as root": (dataclasses.replace(ROOT, kernel=(6, 1), landlock_abi=2, cgroup_version=2), Level.FULL, []),
    "Landlock not started, as root": (
        dataclasses.replace(ROOT, refused={Feature.LANDLOCK: "landlock_create_ruleset: Operation not supported"}, landlock_abi=0),
        Level.FULL,
        [],
    ),
}


@pytest.mark.parametrize(("facts", "level", "lines"), MACHINES.values(), ids=MACHINES.keys())
def test_a_machine_gives_its_best_level_and_says_what_keeps_it_from_more(facts: Facts, level: Level, lines: list[str]):
    assert best(facts) is level
    said = [str(line) for line in missing(facts, Level.FULL)]
    assert len(said) == len(lines)
    assert all(line.startswith(start) for line, start in zip(said, lines, strict=True)), said


@pytest.mark.parametrize("facts", [facts for facts, _, _ in MACHINES.values()], ids=MACHINES.keys())
def test_auto_takes_the_best_and_never_none(facts: Facts):
    choice = choose(AUTO, facts)
    if best(facts) is Level.NONE:
        assert isinstance(choice, Refused)
        assert choice.level is Level.LANDLOCK
        assert choice.missing
    else:
        assert choice == Chosen(best(facts), tuple(missing(facts, Level.FULL)))


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("facts", [facts for facts, _, _ in MACHINES.values()], ids=MACHINES.keys())
def test_a_named_level_is_had_as_it_is_or_not_at_all(facts: Facts, level: Level):
    lacking = missing(facts, level)
    assert choose(level, facts) == (Refused(level, tuple(lacking)) if lacking else Chosen(level, ()))


def test_a_start_that_is_refused_has_one_line_for_each_missing_feature():
    facts, _, _ = MACHINES["Linux 5.10 as a user"]
    choice = choose(AUTO, facts)
    assert isinstance(choice, Refused)
    assert choice.lines() == [
        "isolation landlock can't be had on this machine:",
        "  landlock: landlock_create_ruleset: not implemented; it needs Linux 5.13 or newer",
    ]


def test_landlock_that_was_not_started_is_asked_for_at_boot():
    facts, _, _ = MACHINES["Landlock not started, as root"]
    (found,) = missing(facts, Level.LANDLOCK)
    assert "lsm=" in found.advice


@given(
    st.dictionaries(st.sampled_from(Feature), st.sampled_from(["", NOT_PERMITTED])),
    st.booleans(),
    st.booleans(),
    st.sampled_from([(5, 4), (5, 12), (6, 18)]),
    st.dictionaries(st.sampled_from(Switch), st.sampled_from([0, 1])),
)
def test_whatever_a_machine_refuses(
    refused: dict[Feature, str], privileged: bool, contained: bool, kernel: tuple[int, int], switches: dict[Switch, int]
):
    facts = Facts(
        uid=0 if privileged else 1000,
        privileged=privileged,
        kernel=kernel,
        refused=refused,
        contained=contained,
        switches=switches,
        cgroup_advice="delegate it",
    )
    level = best(facts)
    assert missing(facts, level) == []
    for stronger in list(Level)[: list(Level).index(level)]:
        lacking = missing(facts, stronger)
        assert lacking
        assert all(line.what and line.why and line.advice and "\n" not in str(line) for line in lacking)
    assert needs(facts, Level.NAMESPACES) < needs(facts, Level.FULL)
