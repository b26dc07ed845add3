"""Memory, disk, limits and clock."""

import os
import resource
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from fornada.cli.checks.finding import Finding, fail, ok, warn
from fornada.cli.checks.machine import Machine
from fornada.core.resources import format_size
from fornada.node.devices.cpu import cgroup_memory, memory_info

GIB = 1024**3
DISK_LITTLE = 5 * GIB
"""One TensorFlow environment is about 2 GiB, and is built beside the old one."""
DISK_TOO_LITTLE = GIB // 2
MEMORY_LITTLE = 2 * GIB
FILES_NEEDED = 8192
"""Connections, each with a descriptor, and three descriptors per runner."""
PROCESSES_NEEDED = 1024
RELEASED = 1_735_689_600
"""2025-01-01: no clock of a machine that runs this stands before it."""


def devices(machine: Machine) -> Iterator[Finding]:
    total = memory_info(machine.root)["MemTotal"]
    bound = min((limit for limit, _ in cgroup_memory(machine.root)), default=None)
    usable = min(total, bound) if bound else total
    seen = f"{os.cpu_count()} CPUs, {format_size(usable)} of memory" + (
        f" (the cgroup's bound; the machine has {format_size(total)})" if bound and bound < total else ""
    )
    if usable < MEMORY_LITTLE:
        yield warn("cpu", seen, f"a TensorFlow model takes {format_size(MEMORY_LITTLE)}; run small models, or give the node more")
    else:
        yield ok("cpu", seen)
    driver = machine.read("/proc/driver/nvidia/version")
    if driver:
        yield warn("gpu", driver.splitlines()[0], "nothing to do: this release places models on the CPU")
    else:
        yield ok("gpu", "none seen; models run on the CPU")


def disk(machine: Machine) -> Iterator[Finding]:
    where = _nearest(machine.data_dir)
    usage = shutil.disk_usage(where)
    seen = f"{format_size(usage.free)} free of {format_size(usage.total)} for {machine.data_dir}"
    if usage.free < DISK_TOO_LITTLE:
        yield fail("disk", seen, "free some, or give --data-dir another disk; 'fornada prune' frees what no model uses")
    elif usage.free < DISK_LITTLE:
        yield warn("disk", seen, f"large environments need {format_size(DISK_LITTLE)}; 'fornada prune' frees what no model uses")
    else:
        yield ok("disk", seen)
    status = os.statvfs(where)
    if not os.access(where, os.W_OK):
        yield fail("data directory", f"{where} can't be written", "give --data-dir a directory that you may write")
    elif status.f_flag & os.ST_NOEXEC:
        yield fail("data directory", f"{where} is mounted noexec, and environments hold programs", "give --data-dir another disk")
    elif status.f_files and status.f_favail < 50_000:
        yield warn("data directory", f"{status.f_favail} inodes left on {where}", "an environment takes up to 30,000 files; free some")
    else:
        yield ok("data directory", f"{machine.data_dir}{'' if os.path.exists(machine.data_dir) else ' (will be made)'}")


def limits(machine: Machine) -> Iterator[Finding]:
    for name, number, needed, option in (
        ("open files", resource.RLIMIT_NOFILE, FILES_NEEDED, "-n"),
        ("processes", resource.RLIMIT_NPROC, PROCESSES_NEEDED, "-u"),
    ):
        soft, hard = resource.getrlimit(number)
        seen = f"{_limit(soft)}, at most {_limit(hard)}"
        if hard != resource.RLIM_INFINITY and hard < needed:
            yield warn(name, seen, f"raise it to {needed} (ulimit -H{option[1:]}, or LimitNOFILE= and LimitNPROC= of a service)")
        else:
            yield ok(name, seen)
    pids = machine.number("/sys/fs/cgroup/pids.max") or machine.number("/sys/fs/cgroup/pids/pids.max")
    if pids is not None and pids < PROCESSES_NEEDED:
        yield warn("pids of the cgroup", str(pids), f"raise it to {PROCESSES_NEEDED} (--pids-limit of a container)")


def clock(machine: Machine) -> Iterator[Finding]:
    now = time.time()
    seen = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now < RELEASED:
        yield fail("clock", seen, "set the clock: certificates and times in the API would be wrong")
    else:
        yield ok("clock", seen)


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)


def _nearest(path: Path) -> Path:
    """The directory itself or the closest one above it that exists, as far as this user can look."""
    path = path.absolute()
    while not os.path.exists(path):
        path = path.parent
    return path
