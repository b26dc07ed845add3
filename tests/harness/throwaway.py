"""Runs a module in namespaces of its own, so that whatever it does ends with them: users, processes, mounts, network, IPC, names.

Inside, all files are read-only but one directory, a tmpfs of bounded size. A cgroup bounds memory and processes where this user
may make one (else limits of the processes do), and time is bounded always: with the first process the kernel ends all others.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.bounds import bound

REPOSITORY = Path(__file__).resolve().parents[2]
MIB = 1024 * 1024
STRANGER = 64321
"""An uid that nobody has: what an ordinary user is where root runs the tests."""


@dataclass(frozen=True)
class Bounds:
    """What the whole namespace may take."""

    memory_bytes: int = 1024 * MIB
    disk_bytes: int = 256 * MIB
    """Part of the memory."""
    processes: int = 400
    seconds: float = 60


@dataclass(frozen=True)
class Finished:
    """How the module ended."""

    status: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Orders:
    """What tests/harness/inside.py is told, as JSON."""

    directory: str
    disk_bytes: int
    processes: int
    own_users: bool
    uid: int
    """The module runs as this user; -1: as root of the namespace (without `own_users`: as whoever started it)."""
    argv: list[str]


class NotPossible(Exception):
    """This machine gives no such namespaces; the message is one line."""


def run_apart(
    module: str,
    arguments: Sequence[str] = (),
    *,
    bounds: Bounds,
    own_users: bool = True,
    uid: int = -1,
    groups_of: int = -1,
) -> Finished:
    """`python -m module DIRECTORY arguments...` apart from everything; DIRECTORY is the one place that can be written.

    With `own_users` it gets a user namespace too, and root in it is nobody outside. Without (root only) it keeps the rights of root.
    `groups_of` (root only) is the user to whom its cgroups belong, as a system's manager would delegate them.
    Raises NotPossible; TimeoutError after `bounds.seconds`, when nothing of it is left.
    """
    directory = tempfile.mkdtemp(prefix="fornada-apart-")
    os.chmod(directory, 0o755)
    argv = [sys.executable, "-B", "-m", module, directory, *arguments]
    orders = Orders(directory, bounds.disk_bytes, bounds.processes, own_users, uid, argv)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("FORNADA_", "PYTEST_", "COVERAGE_"))}
    scale = {"FORNADA_TEST_TIMEOUT_SCALE": os.environ.get("FORNADA_TEST_TIMEOUT_SCALE", "1")}
    report, report_end = os.pipe()
    try:
        with _control_groups(bounds, groups_of) as join:
            process = subprocess.Popen(
                [sys.executable, "-B", "-m", "tests.harness.inside", str(report_end), json.dumps(asdict(orders))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=REPOSITORY,
                env={**kept, **scale, "HOME": directory},
                pass_fds=(report_end,),
            )
            os.close(report_end)
            report_end = -1
            try:
                _let_in(process.pid, report, own_users=own_users, join=join)
                out, err = process.communicate(b"go\n", timeout=bound(bounds.seconds))
            except subprocess.TimeoutExpired:
                raise TimeoutError(f"{module} took longer than {bound(bounds.seconds):g} s") from None
            finally:
                if process.poll() is None:
                    process.kill()  # its child, process 1, is tied to it by a death signal
                process.communicate()
    finally:
        os.close(report)
        if report_end >= 0:
            os.close(report_end)
        with contextlib.suppress(OSError):
            os.rmdir(directory)
    text = err.decode(errors="replace")
    if process.returncode == 77:
        raise NotPossible(text.strip().splitlines()[-1])
    return Finished(process.returncode, out.decode(errors="replace"), text)


def _let_in(pid: int, report: int, *, own_users: bool, join: Sequence[Path]) -> None:
    """Waits until the child has its namespaces, then puts it into its cgroups and says who is who in them."""
    for path in join:
        path.write_text(str(pid))
    if os.read(report, 1) != b"u" or not own_users:
        return
    uid, gid = os.geteuid(), os.getegid()
    # Root's own uids stay what they are, so that files keep their owners and set-uid programs their meaning.
    everybody = uid == 0
    if not everybody:
        Path(f"/proc/{pid}/setgroups").write_text("deny")
    Path(f"/proc/{pid}/uid_map").write_text("0 0 65536" if everybody else f"{uid} {uid} 1")
    Path(f"/proc/{pid}/gid_map").write_text("0 0 65536" if everybody else f"{gid} {gid} 1")


@contextlib.contextmanager
def _control_groups(bounds: Bounds, owner: int) -> Iterator[list[Path]]:
    """Files to write a pid to, so that the bounds hold for it; none where this user can't have a group."""
    made: list[Path] = []
    try:
        for parent, limits in _parents(bounds):
            group = parent / f"fornada-apart-{os.getpid()}"
            try:
                group.mkdir()
            except OSError:
                continue
            made.append(group)
            if owner >= 0:
                for path in (group, *group.iterdir()):
                    os.chown(path, owner, owner)
            for name, value in limits.items():
                with contextlib.suppress(OSError):
                    (group / name).write_text(value)
        yield [group / "cgroup.procs" for group in made]
    finally:
        for group in made:
            _remove(group)


def _remove(group: Path) -> None:
    """What a node made below it goes first; a group may be busy for a moment with processes that just ended."""
    end = time.monotonic() + bound(5)
    while group.exists() and time.monotonic() < end:
        for folder, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        time.sleep(0.01)


def _parents(bounds: Bounds) -> Iterator[tuple[Path, dict[str, str]]]:
    """Groups below which one may be made, and what to write there: version 1's, one for each controller, and version 2's."""
    root = Path("/sys/fs/cgroup")
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            yield root / "memory" / path.lstrip("/"), {"memory.limit_in_bytes": str(bounds.memory_bytes)}
        elif controllers == "pids":
            yield root / "pids" / path.lstrip("/"), {"pids.max": str(bounds.processes)}
        elif controllers.split(",")[0] in ("cpu", "cpuacct"):
            yield root / controllers / path.lstrip("/"), {}
        elif not controllers and (root / "cgroup.controllers").exists():
            yield root, {"memory.max": str(bounds.memory_bytes), "pids.max": str(bounds.processes)}
