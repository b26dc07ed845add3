"""How far models can be kept apart on a machine, by what its kernel was seen to allow. Pure: facts in, a level and advice out.

full        namespaces, and cgroups that bound memory and processes
namespaces  an own view of files, processes, network and the rest; limits are rlimits and a watch over memory
landlock    the host's view, of which Landlock and a strict system call filter leave what is the model's
none        nothing; only where it was asked for
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

AUTO = "auto"
SCOPED_SIGNALS_SINCE = 6
"""Landlock's version from which on it keeps signals inside."""


class Level(enum.StrEnum):
    FULL = "full"
    NAMESPACES = "namespaces"
    LANDLOCK = "landlock"
    NONE = "none"


class Feature(enum.Enum):
    """What the walls are made of. The value is what people read."""

    USER_NAMESPACE = "user namespaces"
    PID_NAMESPACE = "pid namespaces"
    MOUNT_NAMESPACE = "mount namespaces"
    NETWORK_NAMESPACE = "network namespaces"
    IPC_NAMESPACE = "ipc namespaces"
    UTS_NAMESPACE = "uts namespaces"
    CGROUP_NAMESPACE = "cgroup namespaces"
    MOUNT_DESCRIPTORS = "open_tree and mount_setattr"
    OWN_PROC = "an own /proc"
    OWN_ROOT = "an own root"
    INNER_USER_NAMESPACE = "a user namespace inside the others"
    NO_NEW_PRIVILEGES = "no_new_privs"
    SECCOMP = "seccomp filters"
    LANDLOCK = "landlock"
    CGROUPS = "cgroups"


class Switch(enum.Enum):
    """Settings of the kernel that take a feature away. The value is sysctl's name for it."""

    USERNS_CLONE = "kernel.unprivileged_userns_clone"
    MAX_USER_NAMESPACES = "user.max_user_namespaces"
    APPARMOR_USERNS = "kernel.apparmor_restrict_unprivileged_userns"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was seen. Features that `refused` doesn't name worked when they were tried."""

    uid: int
    """Effective."""
    privileged: bool
    """It holds CAP_SYS_ADMIN, and so needs no user namespace."""
    kernel: tuple[int, int]
    refused: Mapping[Feature, str] = field(default_factory=dict)
    """Feature -> the kernel's words. "": it couldn't even be tried, for want of another."""
    landlock_abi: int = 0
    cgroup_version: int = 0
    """0 where no groups can be made."""
    controllers: tuple[str, ...] = ()
    cgroup_advice: str = ""
    """What would change that."""
    uids: int = 0
    """So many, counted from 0, it may give to what it starts; 0: only its own."""
    subordinate_ids: int = 0
    """Further uids that the user may give to models: /etc/subuid, with newuidmap installed."""
    contained: bool = False
    """Signs of a container: a filter around this process, or a /proc of which parts are covered."""
    switches: Mapping[Switch, int] = field(default_factory=dict)
    """Those that this kernel has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """One feature that a level needs and the machine doesn't give."""

    what: str
    why: str
    advice: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}; {self.advice}"


@dataclass(frozen=True, slots=True)
class Chosen:
    """What models get."""

    level: Level
    missing: tuple[Missing, ...]
    """What keeps `auto` from more; empty where more wasn't asked for."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The node can't start with the level that was asked for."""

    level: Level
    missing: tuple[Missing, ...]

    def lines(self) -> list[str]:
        """For the operator: one line, then one for each missing feature."""
        return [f"isolation {self.level} can't be had on this machine:", *(f"  {missing}" for missing in self.missing)]


_CONFINED = frozenset({Feature.SECCOMP, Feature.NO_NEW_PRIVILEGES})
_APART = _CONFINED | {
    Feature.PID_NAMESPACE,
    Feature.MOUNT_NAMESPACE,
    Feature.NETWORK_NAMESPACE,
    Feature.IPC_NAMESPACE,
    Feature.UTS_NAMESPACE,
    Feature.MOUNT_DESCRIPTORS,
    Feature.OWN_PROC,
    Feature.OWN_ROOT,
}
_NEEDS: Mapping[Level, frozenset[Feature]] = {
    Level.FULL: _APART | {Feature.CGROUPS},
    Level.NAMESPACES: _APART,
    Level.LANDLOCK: _CONFINED | {Feature.LANDLOCK},
    Level.NONE: frozenset(),
}
_DOWNWARDS = (Level.FULL, Level.NAMESPACES, Level.LANDLOCK)
_MADE_BY_USERS = _APART - _CONFINED - {Feature.MOUNT_DESCRIPTORS}
"""Given to an ordinary user by a user namespace, and so taken away by what restricts those."""
_SINCE = {
    Feature.MOUNT_DESCRIPTORS: (5, 12),
    Feature.LANDLOCK: (5, 13),
}


def needs(facts: Facts, level: Level) -> frozenset[Feature]:
    """Without a privilege all the other namespaces need one of users around them."""
    needed = _NEEDS[level]
    return needed | {Feature.USER_NAMESPACE} if needed >= _APART and not facts.privileged else needed


def best(facts: Facts) -> Level:
    """The strongest level that the machine gives. NONE means that it gives none: the node must not start unless that was asked for."""
    return next((level for level in _DOWNWARDS if not needs(facts, level) & facts.refused.keys()), Level.NONE)


def missing(facts: Facts, level: Level) -> list[Missing]:
    """What the level needs and the machine doesn't give, in the order of `Feature`. What couldn't be tried is left to its cause."""
    lacking = [feature for feature in Feature if feature in needs(facts, level) and feature in facts.refused]
    tried = [feature for feature in lacking if facts.refused[feature]]
    return [
        Missing(what=feature.value, why=facts.refused[feature] or "not tried", advice=_advice(facts, feature))
        for feature in tried or lacking
    ]


def choose(wanted: str, facts: Facts) -> Chosen | Refused:
    """`wanted` is AUTO or a level's name. `auto` takes the best and never none; a named level is had as it is or not at all."""
    if wanted == AUTO:
        level = best(facts)
        if level is Level.NONE:
            return Refused(Level.LANDLOCK, tuple(missing(facts, Level.LANDLOCK)))
        return Chosen(level, tuple(missing(facts, Level.FULL)))
    level = Level(wanted)
    lacking = tuple(missing(facts, level))
    return Refused(level, lacking) if lacking else Chosen(level, ())


def _advice(facts: Facts, feature: Feature) -> str:
    since = _SINCE.get(feature)
    if since is not None and facts.kernel < since:
        return f"it needs Linux {since[0]}.{since[1]} or newer"
    if feature is Feature.CGROUPS:
        return facts.cgroup_advice
    if feature is Feature.USER_NAMESPACE or (feature in _MADE_BY_USERS and not facts.privileged):
        if (switched := _switched_off(facts)) is not None:
            return switched
    if facts.contained:
        return _container_advice(feature)
    match feature:
        case Feature.LANDLOCK:
            return "boot with it in lsm= (as in lsm=landlock,lockdown,yama), with a kernel that has CONFIG_SECURITY_LANDLOCK"
        case Feature.SECCOMP | Feature.NO_NEW_PRIVILEGES:
            return "it needs a kernel with CONFIG_SECCOMP_FILTER"
        case Feature.OWN_PROC if not facts.privileged:
            return "nothing may be mounted over parts of the host's /proc; or run the node as root"
        case _ if facts.privileged:
            return "it needs a kernel in which they are built and no filter around the node that refuses them"
        case _:
            return "run the node as root, or let ordinary users have user namespaces"


def _switched_off(facts: Facts) -> str | None:
    switches = facts.switches
    if switches.get(Switch.MAX_USER_NAMESPACES) == 0:
        return f"sysctl -w {Switch.MAX_USER_NAMESPACES.value}=10000, or run the node as root"
    if switches.get(Switch.USERNS_CLONE) == 0:
        return f"sysctl -w {Switch.USERNS_CLONE.value}=1, or run the node as root"
    if switches.get(Switch.APPARMOR_USERNS) == 1:
        return (
            "give the node's Python an AppArmor profile with 'userns,', or run the node as root "
            f"(or sysctl -w {Switch.APPARMOR_USERNS.value}=0, for every program of the machine)"
        )
    return None


def _container_advice(feature: Feature) -> str:
    match feature:
        case Feature.OWN_PROC:
            return "start the container with --security-opt systempaths=unconfined"
        case Feature.LANDLOCK | Feature.SECCOMP | Feature.NO_NEW_PRIVILEGES:
            return "the container's seccomp profile must allow it (Docker's own does)"
        case _:
            return (
                "start the container with a seccomp profile that allows unshare, setns, mount, pivot_root, open_tree, move_mount and "
                "mount_setattr (--security-opt seccomp=FILE), and with --security-opt systempaths=unconfined"
            )
