"""Tries what the walls around models are made of, each in a throwaway child: nothing of it stays, here or on the machine.

A child that hangs in the kernel is given up after a bound; what it hasn't told counts as refused.
"""

import contextlib
import io
import os
import re
import select
import shutil
import signal
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

from fornada.keeper.cgroups import files, place, tree
from fornada.keeper.levels import Facts, Feature, Switch
from fornada_sdk.sandbox import forking, identity, landlock, mounts, seccomp, syscalls
from fornada_sdk.sandbox.plan import Access, Landlock, Users

WITHIN_S = 5.0
"""For each of the four children; they take milliseconds."""
CAP_CHOWN, CAP_SETGID, CAP_SETUID, CAP_SYS_ADMIN = 0, 6, 7, 21
_ABI = "abi"
_CGROUP = "cgroup"
_SHARED = (
    (Feature.NETWORK_NAMESPACE, syscalls.CLONE_NEWNET),
    (Feature.IPC_NAMESPACE, syscalls.CLONE_NEWIPC),
    (Feature.UTS_NAMESPACE, syscalls.CLONE_NEWUTS),
    (Feature.CGROUP_NAMESPACE, syscalls.CLONE_NEWCGROUP),
)
_NAMESPACES = (
    *(Feature.USER_NAMESPACE, Feature.PID_NAMESPACE, Feature.MOUNT_NAMESPACE, *(feature for feature, _ in _SHARED)),
    *(Feature.MOUNT_DESCRIPTORS, Feature.OWN_PROC, Feature.OWN_ROOT, Feature.INNER_USER_NAMESPACE),
)
_PLACES = ("/tmp", "/mnt", "/run", "/var", "/usr")

Tell = Callable[[str, str], None]
"""Of a feature's name, the kernel's words: "" says that it works."""


def look(node: str = "fornada-probe", *, ours: Iterable[int] = (), within_s: float = WITHIN_S) -> Facts:
    """Everything, in some tens of milliseconds. The caller must have one thread.

    `node` and `ours` are as for `cgroups.place.find`; the caller itself is ours.
    """
    privileged = _privileged()
    ours = {os.getpid(), *ours}
    told: dict[str, str] = {}
    refused: dict[Feature, str] = {}
    for features, probe in (
        (_NAMESPACES, lambda tell: _namespaces(tell, privileged)),
        ((Feature.NO_NEW_PRIVILEGES, Feature.SECCOMP), _filter),
        ((Feature.LANDLOCK,), _landlock),
        ((Feature.CGROUPS,), lambda tell: _cgroups(tell, node, ours)),
    ):
        said, fault = _in_child(probe, within_s)
        told.update(said)
        refused.update({feature: said.get(feature.name, fault) for feature in features if said.get(feature.name, "untold")})
    if privileged and not refused.get(Feature.USER_NAMESPACE):
        refused.pop(Feature.USER_NAMESPACE, None)  # not tried: it isn't needed
    version, controllers, advice = (told.get(_CGROUP) or "0\t\t").split("\t")
    return Facts(
        uid=os.geteuid(),
        privileged=privileged,
        kernel=_kernel(),
        refused=refused,
        landlock_abi=int(told.get(_ABI) or 0),
        cgroup_version=int(version),
        controllers=tuple(controllers.split()),
        cgroup_advice=advice,
        uids=_uids(),
        subordinate_ids=_subordinate_ids(),
        contained=_contained(),
        switches=_switches(),
    )


# ---- in the child


def _namespaces(tell: Tell, privileged: bool) -> None:
    """As the keeper does it: a pid namespace around the keeper, one inside it around the instance, the others around the instance."""
    uid, gid = os.geteuid(), os.getegid()
    if not privileged:
        if not _step(tell, Feature.USER_NAMESPACE, lambda: _enter_users(uid, gid)):
            return
    try:
        syscalls.unshare(syscalls.CLONE_NEWPID)
        pid = os.fork()
    except OSError as error:
        tell(Feature.PID_NAMESPACE.name, _why(error))
        return
    if pid == 0:
        _ending(lambda: _as_keeper(tell, uid, gid))
    _end_as(pid)


def _as_keeper(tell: Tell, uid: int, gid: int) -> None:
    syscalls.die_with_parent()
    try:
        pid = forking.fork_first()
    except OSError as error:
        tell(Feature.PID_NAMESPACE.name, _why(error))
        return
    if pid == 0:
        _ending(lambda: _as_instance(tell, uid, gid))
    tell(Feature.PID_NAMESPACE.name, "")
    _end_as(pid)


def _as_instance(tell: Tell, uid: int, gid: int) -> None:
    syscalls.die_with_parent()
    for feature, flag in _SHARED:
        _step(tell, feature, lambda flag=flag: syscalls.unshare(flag))  # type: ignore[misc]
    if not _step(tell, Feature.MOUNT_NAMESPACE, _own_mounts):
        return
    top = next(filter(os.path.isdir, _PLACES))
    copies: list[int] = []
    _step(tell, Feature.MOUNT_DESCRIPTORS, lambda: copies.append(mounts.detach("/usr", Access.READ)))
    try:
        syscalls.mount("fornada", top, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "size=1m,mode=755")
        root = os.open(top, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        tell(Feature.OWN_ROOT.name, _why(error))
        return
    os.mkdir(f"{top}/proc")
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    _step(tell, Feature.OWN_PROC, lambda: syscalls.mount("proc", f"{top}/proc", "proc", flags))
    if not _step(tell, Feature.OWN_ROOT, lambda: mounts.change_root(root)):
        return
    _step(tell, Feature.INNER_USER_NAMESPACE, lambda: identity.enter_users(Users(uid=uid, gid=gid)))


def _own_mounts() -> None:
    syscalls.unshare(syscalls.CLONE_NEWNS)
    mounts.make_private()


def _enter_users(uid: int, gid: int) -> None:
    syscalls.unshare(syscalls.CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("gid_map", f"{gid} {gid} 1"), ("uid_map", f"{uid} {uid} 1")):
        try:
            files.write(Path("/proc/self") / name, text)
        except files.CgroupError as error:
            raise OSError(0, str(error)) from None


def _filter(tell: Tell) -> None:
    if _step(tell, Feature.NO_NEW_PRIVILEGES, identity.refuse_new_privileges):
        _step(tell, Feature.SECCOMP, lambda: syscalls.seccomp_filter(seccomp.program(seccomp.Variant.USUAL)))


def _landlock(tell: Tell) -> None:
    def restrict() -> None:
        tell(_ABI, str(syscalls.landlock_version()))
        identity.refuse_new_privileges()
        landlock.restrict(Landlock(grants=(), refuse_tcp=False))

    _step(tell, Feature.LANDLOCK, restrict)


def _cgroups(tell: Tell, node: str, ours: Iterable[int]) -> None:
    found = place.find(node, ours=ours)
    if isinstance(found, place.NoPlace):
        tell(_CGROUP, f"0\t\t{found.advice}")
        tell(Feature.CGROUPS.name, found.why)
        return
    try:
        for folder in dict.fromkeys(found.folders.values()):
            probe = folder / f"{tree.PROBE_PREFIX}{os.getpid()}"
            files.make(probe)
            files.gone(probe)
    except files.CgroupError as error:
        tell(_CGROUP, f"0\t\t{place.ADVICE_CONTAINER}")
        tell(Feature.CGROUPS.name, str(error))
        return
    tell(_CGROUP, f"{found.version.value}\t{' '.join(found.controllers)}\t")
    tell(Feature.CGROUPS.name, "")


def _step(tell: Tell, feature: Feature, call: Callable[[], object]) -> bool:
    try:
        call()
    except OSError as error:
        tell(feature.name, _why(error))
        return False
    tell(feature.name, "")
    return True


def _why(error: OSError) -> str:
    return " ".join(f"{error.strerror or error}{f' ({error.filename})' if error.filename else ''}".split())


def _ending(call: Callable[[], None]) -> None:
    """What a forked child does. It never returns into the code that forked it."""
    code = 1
    try:
        call()
        code = 0
    finally:
        os._exit(code)


def _end_as(pid: int) -> None:
    """A fault of the child's is told as one's own."""
    if os.waitpid(pid, 0)[1]:
        os._exit(1)


# ---- around it


def _in_child(probe: Callable[[Tell], None], within_s: float) -> tuple[dict[str, str], str]:
    """What the probe told, and why it told no more: "" if there was no more to tell."""
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads beside us, whose locks the child asks for none of
        pid = os.fork()
    if pid == 0:
        _ending(lambda: _prepared(probe, write_end))
    os.close(write_end)
    limit = time.monotonic() + within_s
    with contextlib.closing(os.fdopen(read_end, "rb", buffering=0)) as pipe:
        text, ended = _read(pipe, limit)
    if not ended:
        os.kill(pid, signal.SIGKILL)  # and with it, by the kernel, the two below
    said = dict(line.split("\t", 1) for line in text.splitlines())
    code = _reaped(pid, limit + 1)
    if not ended or code is None:
        return said, f"no answer from the kernel in {within_s:g} s"
    return said, "" if code == 0 else f"the probe broke ({f'signal {-code}' if code < 0 else f'exit code {code}'})"


def _read(pipe: io.FileIO, limit: float) -> tuple[str, bool]:
    """All that was written until the limit, and whether the other end was closed by then."""
    text = b""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while poll.poll(max(0.0, limit - time.monotonic()) * 1000):
        piece = pipe.read(65536)
        if not piece:
            return text.decode(errors="replace"), True
        text += piece
    return text.decode(errors="replace"), False


def _reaped(pid: int, limit: float) -> int | None:
    """Its exit code, negative for a signal. None if it hangs in the kernel; whoever reaps strays gets it one day."""
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > limit:
            return None
        time.sleep(0.001)


def _prepared(probe: Callable[[Tell], None], write_end: int) -> None:
    with contextlib.suppress(OSError):  # a processor whose system calls aren't known: each feature will say so
        syscalls.die_with_parent()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    probe(lambda name, why: _write(write_end, f"{name}\t{why}\n"))


def _write(descriptor: int, text: str) -> None:
    os.write(descriptor, text.encode(errors="replace"))


# ---- what files say


def _kernel() -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _privileged() -> bool:
    return _holds(CAP_SYS_ADMIN)


def _holds(*capabilities: int) -> bool:
    match = re.search(r"^CapEff:\s*([0-9a-f]+)$", _text("/proc/self/status"), re.MULTILINE)
    return match is not None and all(int(match[1], 16) >> capability & 1 for capability in capabilities)


def _uids() -> int:
    """A user namespace, as of a container, may know only the first of them."""
    if os.geteuid() != 0 or not _holds(CAP_CHOWN, CAP_SETGID, CAP_SETUID):
        return 0
    return min(_first_range("/proc/self/uid_map"), _first_range("/proc/self/gid_map"))


def _first_range(path: str) -> int:
    for line in _text(path).splitlines():
        inside, _, count = line.split()
        if inside == "0":
            return int(count)
    return 0


def _switches() -> dict[Switch, int]:
    found = {}
    for switch in Switch:
        text = _text("/proc/sys/" + switch.value.replace(".", "/"))
        if text.isdigit():
            found[switch] = int(text)
    return found


def _contained() -> bool:
    """A filter around us, or something mounted over parts of /proc. A file that some image holds says nothing."""
    if re.search(r"^Seccomp:\s*2$", _text("/proc/self/status"), re.MULTILINE):
        return True
    points = [line.split()[4] for line in _text("/proc/self/mountinfo").splitlines() if len(line.split()) > 4]
    return any(point.startswith("/proc/") and not point.startswith("/proc/sys/fs/binfmt_misc") for point in points)


def _subordinate_ids() -> int:
    """subuid(5): name or uid, first, count. 0 where nothing is installed that could map them."""
    if os.geteuid() == 0 or not (shutil.which("newuidmap") and shutil.which("newgidmap")):
        return 0
    return min(_granted("/etc/subuid"), _granted("/etc/subgid"))


def _granted(path: str) -> int:
    names = {str(os.geteuid())} | {line.split(":")[0] for line in _text("/etc/passwd").splitlines() if f":{os.geteuid()}:" in line}
    rows = [line.split(":") for line in _text(path).splitlines()]
    return sum(int(row[2]) for row in rows if len(row) == 3 and row[0] in names and row[2].isdigit())


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
