"""Stands in for a keeper: does what the JSON on its stdin asks, puts programs behind walls, and says on stdout how they fared.

Runs as root, or as an ordinary user who makes himself a user namespace first. Standard library and fornada_sdk.sandbox alone, so
that any interpreter can run it.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import select
import signal
import sys
import time
from typing import Any

from fornada_sdk.sandbox import enter, forking, identity, plan, plan_json, seccomp, syscalls, view
from fornada_sdk.sandbox.plan import Access, Grant, Namespace, Plan

LONGEST_S = float(os.environ.get("LONGEST_S", "30"))
NEIGHBOUR_DIES_S = 0.3
"""For what was sent to a neighbour to arrive; `dies_s` where it must."""
ALL_WALLS = ("landlock", "seccomp", "users", "identity", "root", "namespaces")


def main():
    asked = json.loads(sys.stdin.read())
    if os.geteuid() != 0 and asked["level"] == "namespaces":
        become_owner()
    json.dump(run_below_a_zygote(asked) if asked.get("zygote") else run(asked), sys.stdout)


def run_below_a_zygote(asked):
    """Keeper -> guard, in a new user namespace -> zygote, process 1 of a pid namespace of its own -> the instance."""
    told, theirs = os.pipe()
    ready, made = os.pipe()
    mapped, go = os.pipe()
    outer = view.open_view([], python=asked["python"], over={}, in_memory={}, temporary_bytes=1 << 20, shared_bytes=1 << 20)
    walls, descriptors = planned(asked)
    guard = os.fork()
    if guard == 0:
        try:
            uid, gid = os.geteuid(), os.getegid()
            syscalls.unshare(syscalls.CLONE_NEWUSER)
            if not asked["identity"]:  # a user with no uid but his own
                identity.map_ids("self", uids=[(0, uid, 1)], gids=[(0, gid, 1)])
            os.write(made, b"x")
            os.read(mapped, 1)
            pid = first_below()
            if pid == 0:
                zygote(asked, outer, walls, descriptors, theirs)
            os.waitpid(pid, 0)
        finally:
            os._exit(0)
    os.read(ready, 1)
    if asked["identity"]:
        block = [(0, asked["identity"][0], 64)]
        identity.map_ids(str(guard), uids=block, gids=block, setgroups=True)
    os.write(go, b"x")
    os.close(theirs)
    text = b""
    while piece := read_some(told):
        text += piece
    os.waitpid(guard, 0)
    return json.loads(text)


def first_below():
    syscalls.unshare(syscalls.CLONE_NEWPID)
    return os.fork()


def zygote(asked, outer, walls, descriptors, told):
    """Becomes uid 0 of its block, keeps its rights in there, and forks the instance."""
    try:
        if asked["identity"]:
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)
            walls = dataclasses.replace(walls, identity=plan.Identity(7, 7))
        filtered = None if "zygote's filter" in asked["without"] else seccomp.Variant.ZYGOTE
        own = Plan(namespaces=frozenset(Namespace), root=outer.root, capable=True, seccomp=filtered)
        enter.enter(own, outer.descriptors)
        if asked["zygote"] == "hostile":
            os.write(told, json.dumps([{"code": 0, "out": json.dumps(make_writable()), "fork_us": 0}]).encode())
            os._exit(0)
        pid, result = fork(asked, walls, descriptors, 0)
        finish(pid, result, end=False)
        os.write(told, json.dumps([result]).encode())
    except enter.EnterFailed as failed:
        os.write(told, json.dumps([{"code": 127, "out": "", "failed": f"zygote: {failed}", "fork_us": 0}]).encode())
    finally:
        os._exit(0)


def become_owner():
    """The user's keeper: process 1 of a pid namespace, with all rights over its namespaces and the same uid as before."""
    uid, gid = os.geteuid(), os.getegid()
    syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWPID | syscalls.CLONE_NEWNS)
    for name, line in (("setgroups", "deny"), ("gid_map", f"{gid} {gid} 1"), ("uid_map", f"{uid} {uid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(line)
    pid = os.fork()
    if pid:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 0xFF)


def run(asked):
    neighbour = os.fork() if asked.get("neighbour") else 0
    if asked.get("neighbour") and neighbour == 0:
        be_neighbour(asked)
    results = []
    pids = []
    try:
        for _ in range(asked.get("copies", 1)):
            pid, result = start(asked, neighbour)
            pids.append(pid)
            results.append(result)
            if asked.get("copies", 1) > 1:
                result["out"] = first_line(result)
        for pid, result in zip(pids, results):  # noqa: B905 (Python 3.9)
            finish(pid, result, end=asked.get("copies", 1) > 1)
        if neighbour:
            select.select([os.pidfd_open(neighbour)], (), (), asked.get("dies_s", NEIGHBOUR_DIES_S))
            ended, status = os.waitpid(neighbour, os.WNOHANG)
            results[0]["neighbour"] = os.waitstatus_to_exitcode(status) if ended else None
        return results
    finally:
        if neighbour:
            try:
                os.kill(neighbour, signal.SIGKILL)
            except ProcessLookupError:
                pass


def be_neighbour(asked):
    """A process of the instance's own uid that shouldn't hear of it."""
    syscalls.die_with_parent()
    if asked["identity"]:
        os.setgroups([])
        os.setresgid(asked["identity"][1], asked["identity"][1], asked["identity"][1])
        os.setresuid(asked["identity"][0], asked["identity"][0], asked["identity"][0])
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
    time.sleep(LONGEST_S)
    os._exit(0)


def planned(asked: dict[str, Any]) -> tuple[Plan, tuple[int, ...]]:
    """The plan, and the descriptors that it counts."""
    files = [Grant(path, Access(access)) for path, access in asked["files"]]
    without = set(asked["without"])
    if asked["level"] == "landlock":
        walls = Plan(landlock=view.host_grants(files, python=asked["argv"][0]), seccomp=seccomp.Variant.STRICT)
        descriptors: tuple[int, ...] = ()
        without |= {"root", "namespaces", "users"}
    else:
        seen = view.open_view(
            files,
            python=asked["argv"][0],
            over=asked.get("over", {}),
            in_memory={},
            temporary_bytes=asked.get("temporary_bytes", 16 << 20),
            shared_bytes=asked.get("shared_bytes", 16 << 20),
        )
        descriptors = seen.descriptors
        walls = Plan(
            namespaces=frozenset(Namespace),
            root=seen.root,
            hostname="model",
            users=plan.Users(),
            landlock=seen.landlock,
            seccomp=seccomp.Variant.USUAL,
        )
    walls = dataclasses.replace(walls, limits=plan.Limits(**asked.get("limits", {})))
    if asked["identity"]:
        walls = dataclasses.replace(walls, identity=plan.Identity(*asked["identity"]))
    if "variant" in asked:
        walls = dataclasses.replace(walls, seccomp=seccomp.Variant(asked["variant"]))
    if asked.get("loopback"):
        walls = dataclasses.replace(walls, loopback=True)
    for path in asked.get("cgroups", ()):
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        walls = dataclasses.replace(walls, cgroups=(*walls.cgroups, len(descriptors)))
        descriptors = (*descriptors, descriptor)
    if asked.get("entries"):
        more = plan_json.load({"root": {"entries": asked["entries"]}, "namespaces": ["mounts"]}).root
        assert more and walls.root
        walls = dataclasses.replace(walls, root=plan.Root((*walls.root.entries, *more.entries)))
    nothing: dict[str, Any] = {"root": None, "users": None, "identity": None, "landlock": None, "seccomp": None}
    walls = dataclasses.replace(walls, **{name: nothing[name] for name in ALL_WALLS if name in without and name in nothing})
    if "root" in without:
        walls = dataclasses.replace(walls, namespaces=walls.namespaces - {Namespace.MOUNTS})
    gone = {space for space in Namespace if space.value in without or "namespaces" in without}
    if gone:
        hostname = "" if Namespace.HOSTNAME in gone else walls.hostname
        walls = dataclasses.replace(walls, hostname=hostname, namespaces=walls.namespaces - gone)
    return plan_json.load(json.loads(json.dumps(plan_json.dump(walls)))), descriptors


def start(asked, neighbour):
    return fork(asked, *planned(asked), neighbour)


def fork(asked, walls, descriptors, neighbour):
    if walls.seccomp and asked.get("warm", True):
        seccomp.program(walls.seccomp)
    report, told = os.pipe()
    out, written = os.pipe()
    began = time.perf_counter()
    first = asked["level"] == "namespaces" and "pids" not in asked["without"]
    pid = forking.fork_first() if first else os.fork()
    if pid == 0:
        os.close(out)
        if not asked.get("orphan"):
            os.close(report)
        become(asked, walls, descriptors, told, written, report, neighbour)
    forked = time.perf_counter()
    os.close(told)
    os.close(written)
    for descriptor in descriptors:
        os.close(descriptor)
    return pid, {"report": report, "out": out, "fork_us": (forked - began) * 1e6}


def become(asked, walls, descriptors, told, written, report, neighbour):
    try:
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(written, 1)
        os.dup2(written, 2)
        os.close(written)
        if asked.get("orphan"):
            # As if the parent had died: nobody reads the report any more.
            told, saved = os.dup(told), told
            os.close(report)
            gone, end = os.pipe()
            os.close(gone)
        else:
            saved, end = told, told
        os.setsid()
        steps = []
        last = [time.perf_counter()]

        def done(step):
            now = time.perf_counter()
            steps.append([step, (now - last[0]) * 1e6])
            last[0] = now

        if asked.get("halves"):
            in_halves(asked, walls, descriptors, end, done)
        else:
            enter.enter(walls, descriptors, parent=end, done=done)
        os.write(saved, json.dumps({"steps": steps}).encode())
        os.set_inheritable(saved, False)
        if asked.get("cwd"):
            os.chdir(asked["cwd"])
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        argv = [word.replace("NEIGHBOUR", str(neighbour)) for word in asked["argv"]]
        os.execve(argv[0], argv, asked["env"])
    except enter.EnterFailed as failed:
        os.write(saved, json.dumps({"failed": str(failed)}).encode())
    except OSError as error:
        os.write(saved, json.dumps({"failed": f"exec: {error}"}).encode())
    finally:
        os._exit(127)


def in_halves(asked, walls, descriptors, end, done):
    """As a spare: what every model has first, then this one's files, name and rights."""
    own = len(asked["files"])
    kept = len(walls.root.entries) - own
    early, late = walls.root.entries[:kept], walls.root.entries[kept:]
    count = len(descriptors) - own - len(walls.cgroups)
    base = Plan(namespaces=walls.namespaces, root=plan.Root(early), loopback=walls.loopback)
    halfway = enter.begin(base, descriptors[:count], parent=end, done=done)
    moved = tuple(dataclasses.replace(entry, descriptor=entry.descriptor - count) for entry in late)
    groups = tuple(index - count for index in walls.cgroups)
    rest = dataclasses.replace(walls, root=plan.Root(moved), cgroups=groups)
    enter.complete(halfway, rest, descriptors[count:], parent=end, done=done)


def make_writable():
    """What code that a zygote imports would try: its mounts are read-only, but it owns the namespace that they are in."""
    flags = syscalls.MS_REMOUNT | syscalls.MS_BIND | syscalls.MS_NOSUID | syscalls.MS_NODEV
    try:
        syscalls.mount(None, "/usr", None, flags)
        return "writable"
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def first_line(result):
    line = b""
    while not line.endswith(b"\n"):
        piece = read_some(result["out"])
        if not piece:
            break
        line += piece
    os.close(result["out"])
    return line.decode()


def read_some(descriptor):
    ready, _, _ = select.select([descriptor], [], [], LONGEST_S)
    return os.read(descriptor, 65536) if ready else b""


def finish(pid, result, *, end):
    if isinstance(result["out"], int):
        text = b""
        while piece := read_some(result["out"]):
            text += piece
        os.close(result["out"])
        result["out"] = text.decode(errors="replace")
    report = b""
    while piece := read_some(result["report"]):
        report += piece
    os.close(result["report"])
    result.update(json.loads(report.decode().replace("}{", ", ") or "{}"))
    if end:
        os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + LONGEST_S
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
            result["late"] = True
        time.sleep(0.002)
    result["code"] = os.waitstatus_to_exitcode(status)
    del result["report"]


if __name__ == "__main__":
    main()
