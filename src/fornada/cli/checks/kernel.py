"""What the kernel offers to keep models apart, and what of that models get."""

import platform
import re
from collections.abc import Iterable, Iterator

from fornada.app.isolation import OPEN_UP, Isolation, closed_to_models, walls
from fornada.cli.checks.finding import Finding, fail, ok, warn
from fornada.cli.checks.machine import Machine
from fornada.keeper.levels import Facts, Feature, Level, Missing, missing

OLDEST = (5, 9)
"""close_range; pidfds came with 5.3."""
MEANS = {
    Level.FULL: "models see neither the machine nor one another, and have bounds of memory, CPU and processes",
    Level.NAMESPACES: "models see neither the machine nor one another; their memory is watched, not bounded by the kernel",
    Level.LANDLOCK: "models see the machine's processes, and reach no files but their own and no network; each start imports all its packages",
}
GROUPS = (
    ("user namespaces", (Feature.USER_NAMESPACE,)),
    ("pid namespaces", (Feature.PID_NAMESPACE,)),
    ("other namespaces", (Feature.MOUNT_NAMESPACE, Feature.NETWORK_NAMESPACE, Feature.IPC_NAMESPACE, Feature.UTS_NAMESPACE)),
    ("own file system", (Feature.MOUNT_DESCRIPTORS, Feature.OWN_PROC, Feature.OWN_ROOT)),
    ("system calls", (Feature.NO_NEW_PRIVILEGES, Feature.SECCOMP)),
    ("landlock", (Feature.LANDLOCK,)),
    ("cgroups", (Feature.CGROUPS,)),
)
"""Lines of `fornada doctor`, and what each is about."""


def isolation(found: Isolation) -> Iterator[Finding]:
    """What models get, and what they could get."""
    if found.used is Level.NONE:
        yield _none(found)
    elif found.used is None:
        level = Level.LANDLOCK if found.wanted not in tuple(Level) else Level(found.wanted)
        lacking = missing(found.facts, level)
        yield fail(
            "isolation", f"{found.wanted} can't be had here: {_reasons(lacking)}", "; ".join(dict.fromkeys(one.advice for one in lacking))
        )
    elif found.missing and found.used is found.offered:
        seen = f"{found.wanted} means {found.used} here: {MEANS[found.used]}"
        yield warn("isolation", seen, f"for full isolation change what the lines below say: {', '.join(one.what for one in found.missing)}")
    else:
        yield ok("isolation", f"{found.wanted} means {found.used} here: {MEANS[found.used]}")


def reach(machine: Machine, found: Isolation) -> Iterator[Finding]:
    """Whether models come as far as to Python and to their files."""
    if found.used is None:
        return
    if closed := closed_to_models(walls(found.used, found.facts, node="", run_dir=""), machine.data_dir):
        yield fail("paths of models", closed, OPEN_UP)
    else:
        yield ok("paths of models", "Python and the data directory can be reached")


def features(found: Isolation) -> Iterator[Finding]:
    """What the walls are made of, one line each."""
    for subject, group in GROUPS:
        yield _feature(found, subject, group)
    yield ok("uids of models", _uids(found.facts))


def release(machine: Machine) -> Iterator[Finding]:
    text = machine.read("/proc/sys/kernel/osrelease") or platform.release()
    match = re.match(r"(\d+)\.(\d+)", text)
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    if version >= OLDEST:
        yield ok("kernel", f"Linux {text}")
    else:
        yield fail("kernel", f"Linux {text}", f"Fornada needs {OLDEST[0]}.{OLDEST[1]} or newer (close_range, pidfds)")


def _none(found: Isolation) -> Finding:
    who = "root" if found.facts.uid == 0 else "your user"
    seen = f"a model is a process of its own, but runs as {who} and can read, write and reach what {who} can"
    return warn("isolation", f"none, as was asked for: {seen}", "run only models that you trust, or leave --isolation at auto")


def _feature(found: Isolation, subject: str, group: tuple[Feature, ...]) -> Finding:
    facts = found.facts
    refused = [feature for feature in group if feature in facts.refused]
    if not refused:
        return ok(subject, _works(facts, group[0]))
    lacking = [
        one for level in (Level.FULL, Level.LANDLOCK) for one in missing(facts, level) if one.what in {feature.value for feature in refused}
    ]
    if not lacking:  # not tried, for want of another, whose line says what to do
        return ok(subject, "not tried, since something that they need is missing")
    advice = "; ".join(dict.fromkeys(one.advice for one in lacking))
    why = lacking[0].why if len(group) == 1 else _reasons(lacking)
    return warn(subject, f"not available: {why}", advice)


def _works(facts: Facts, first: Feature) -> str:
    match first:
        case Feature.USER_NAMESPACE if facts.privileged:
            return "not needed by root"
        case Feature.LANDLOCK:
            return f"ABI {facts.landlock_abi}"
        case Feature.CGROUPS:
            return f"version {facts.cgroup_version} with {', '.join(facts.controllers)}"
        case Feature.SECCOMP | Feature.NO_NEW_PRIVILEGES:
            return "can be filtered"
        case _:
            return "available"


def _uids(facts: Facts) -> str:
    if facts.uids:
        return "each has one of its own, where it is confined"
    if facts.subordinate_ids:
        return f"all have this user's own; this release doesn't use the {facts.subordinate_ids} subordinate ones"
    return "all have this user's own"


def _reasons(lacking: Iterable[Missing]) -> str:
    return "; ".join(dict.fromkeys(f"{one.what}: {one.why}" for one in lacking))
