"""What the kernel offers to keep models apart, and what of that this release uses."""

import ctypes
import platform
import re
from collections.abc import Iterator

from fornada.cli.checks.finding import Finding, fail, ok, warn
from fornada.cli.checks.machine import Machine

OLDEST = (5, 9)
"""close_range; pidfds came with 5.3."""
LANDLOCK_CREATE_RULESET = 444
LANDLOCK_VERSION = 1
LATER = "not used yet; a later release confines models with it"


def isolation(machine: Machine) -> Iterator[Finding]:
    who = "root" if machine.uid == 0 else "your user"
    yield warn(
        "isolation",
        f"auto means none in this release: a model is a process of its own, but runs as {who} and can read, write and reach what {who} can",
        "run only models that you trust (SECURITY.md); a later release confines them",
    )


def release(machine: Machine) -> Iterator[Finding]:
    text = machine.read("/proc/sys/kernel/osrelease") or platform.release()
    match = re.match(r"(\d+)\.(\d+)", text)
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    if version >= OLDEST:
        yield ok("kernel", f"Linux {text}")
    else:
        yield fail("kernel", f"Linux {text}", f"Fornada needs {OLDEST[0]}.{OLDEST[1]} or newer (close_range, pidfds)")


def namespaces(machine: Machine) -> Iterator[Finding]:
    users = machine.number("/proc/sys/user/max_user_namespaces")
    refused = []
    if users == 0:
        refused.append("user.max_user_namespaces = 0")
    if machine.number("/proc/sys/kernel/unprivileged_userns_clone") == 0:
        refused.append("kernel.unprivileged_userns_clone = 0")
    if machine.number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1:
        refused.append("kernel.apparmor_restrict_unprivileged_userns = 1")
    if not machine.exists("/proc/self/ns/user"):
        refused.append("not built into the kernel")
    if refused:
        yield warn("user namespaces", f"not for ordinary users ({', '.join(refused)})", f"nothing yet: {LATER}")
    else:
        yield ok("user namespaces", LATER)
    if not machine.exists("/proc/self/ns/pid"):
        yield warn("pid namespaces", "not built into the kernel", "ends of processes are tied otherwise; nothing to do")
    elif machine.uid == 0:
        yield ok("pid namespaces", "used: when the node ends, the kernel ends everything it started")
    else:
        yield ok("pid namespaces", "not for ordinary users here; processes are tied to the node by parent-death signals and a sweep")


def cgroups(machine: Machine) -> Iterator[Finding]:
    membership = machine.read("/proc/self/cgroup") or ""
    unified = machine.exists("/sys/fs/cgroup/cgroup.controllers")
    if unified:
        controllers = machine.read("/sys/fs/cgroup/cgroup.controllers") or "none"
        yield ok("cgroups", f"version 2 with {controllers}; {LATER}")
    elif re.search(r"^\d+:[^:]*memory[^:]*:", membership, re.MULTILINE):
        yield ok("cgroups", f"version 1; {LATER}")
    else:
        yield warn("cgroups", "no memory controller", "limits of models' memory will be rlimits and a watch over them; nothing to do yet")


def landlock(machine: Machine) -> Iterator[Finding]:
    abi = landlock_abi()
    if abi > 0:
        yield ok("landlock", f"ABI {abi}; {LATER}")
    else:
        yield warn("landlock", "not offered by this kernel", "nothing yet; it will be one of two walls around models")


def landlock_abi() -> int:
    """The kernel's answer to the question for it; it makes no ruleset. 0 where there is no Landlock."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        answer: int = libc.syscall(ctypes.c_long(LANDLOCK_CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint32(LANDLOCK_VERSION))
    except (OSError, AttributeError):
        return 0
    return max(answer, 0)
