"""The walls of the whole node: a real main and a real keeper, and children that look around, at each level that the machine offers."""

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fornada.keeper.levels import Level
from tests.bounds import count
from tests.harness.processes import Process, all_gone, descendants
from tests.harness.waiting import until
from tests.harness.walls import at_rest, groups, held, lacking, tops, uid
from tests.process.tree import Tree
from tests.security.sandbox.cage import everybodys_python

MIB = 1024 * 1024
LEVELS = [Level.FULL, Level.NAMESPACES, Level.LANDLOCK]
APART = [Level.FULL, Level.NAMESPACES]
ROOT = os.geteuid() == 0
BEGIN = """
import json, os, signal, socket, sys, time
def say(value):
    os.write(1, json.dumps(value).encode() + b"\\n")
def trial(call):
    try:
        return call()
    except OSError as error:
        return error.strerror
def read(path):
    with open(path, "rb") as file:
        return file.read(4096).decode(errors="replace")
def write(path):
    with open(path, "w") as file:
        file.write("written")
    return "written"
"""
REST = "\ntime.sleep(600)\n"


class Stage:
    """A tree of one level, and what its children are given."""

    def __init__(self, folder: Path, level: Level) -> None:
        self.level = level
        self.folder = folder
        python = everybodys_python()
        assert python
        self.python = python
        self.own = self._folder("own", "own")
        self.scratch = self._folder("scratch", "mine")
        self.secret = self._folder("secret", "secret")
        for path in (self.secret, self.secret / "file"):
            path.chmod(0o777)  # so that no right of files keeps anybody out
        self.tree = self.start()

    def start(self) -> Tree:
        return Tree(self.folder, nested=True, isolation=self.level, node={"kill_s": 0.3})

    def _folder(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.mkdir(mode=0o755)
        (path / "file").write_text(text)
        return path

    def sandbox(self, **more: Any) -> dict[str, Any]:
        files = [[str(self.own), "read"], [str(self.scratch), "write"]]
        return {"files": files, "python": self.python, **more}

    def spawn(self, name: str, code: str, *arguments: str, **order: Any) -> int:
        order.setdefault("sandbox", self.sandbox())
        return self.tree.spawn(name, argv=[self.python, "-I", "-S", "-c", BEGIN + code + REST, *arguments], **order)

    def line(self, name: str) -> Any:
        text = self.tree.ask("line", instance=name)
        assert text.endswith("\n"), f"it ended after {text!r}"
        return json.loads(text)

    def see(self, name: str, code: str, *arguments: str, **order: Any) -> Any:
        """What a new child says."""
        self.spawn(name, code, *arguments, **order)
        return self.line(name)

    def end(self, name: str) -> None:
        self.tree.ask("signal", instance=name, number=signal.SIGKILL)
        self.tree.ask("exited", instance=name)
        self.tree.ask("forget", instance=name)

    def leave(self) -> None:
        """In good order, so that no group stays on the machine."""
        if self.tree.main.poll() is None:
            self.tree.signal(signal.SIGTERM)
            assert self.tree.wait(within_s=10) == 0, self.tree.said()
        self.tree.end()
        assert not tops(self.tree.data)


@pytest.fixture
def stage() -> Iterator[Callable[[Level], Stage]]:
    made: list[Stage] = []
    # Not below pytest's own folder, which other uids can't pass.
    folder = Path(tempfile.mkdtemp(prefix="fornada-walls-", dir="/var/tmp"))
    folder.chmod(0o755)

    def make(level: Level) -> Stage:
        if why := lacking(level):
            pytest.skip(f"{level}: {why}")
        if everybodys_python() is None:
            pytest.skip("no Python that everybody may execute")
        made.append(Stage(folder, level))
        return made[-1]

    yield make
    for one in made:
        one.leave()
    shutil.rmtree(folder)


SEES = """
own, scratch, secret, keeper = sys.argv[1:]
say({
    "root": trial(lambda: os.listdir("/")),
    "own": trial(lambda: read(own + "/file")),
    "own written": trial(lambda: write(own + "/file")),
    "own made": trial(lambda: write(own + "/new")),
    "scratch": trial(lambda: read(scratch + "/file")),
    "scratch made": trial(lambda: write(scratch + "/new")),
    "secret": trial(lambda: read(secret + "/file")),
    "secret made": trial(lambda: write(secret + "/new")),
    "shadow": trial(lambda: read("/etc/shadow")),
    "usr made": trial(lambda: write("/usr/new")),
    "tmp made": trial(lambda: write("/tmp/new")),
    "tmp": trial(lambda: os.listdir("/tmp")),
    "pids": trial(lambda: sorted(int(name) for name in os.listdir("/proc") if name.isdigit())),
    "keeper": trial(lambda: read(f"/proc/{keeper}/environ")),
    "keeper killed": trial(lambda: os.kill(int(keeper), 0)),
    "parent": trial(lambda: read(f"/proc/{os.getppid()}/environ")),
    "status": read("/proc/self/status"),
    "devices": trial(lambda: sorted(os.listdir("/dev"))),
    "host name": os.uname().nodename,
})
"""
NO = ("No such file or directory", "Permission denied", "Read-only file system", "Operation not permitted", "No such process")


@pytest.mark.parametrize("level", LEVELS)
def test_a_child_sees_what_it_was_given_and_itself(stage: Callable[[Level], Stage], level: Level):
    st = stage(level)
    keeper = st.tree.keeper_pid()
    saw = st.see("a", SEES, str(st.own), str(st.scratch), str(st.secret), str(keeper))
    assert (saw["own"], saw["scratch"], saw["scratch made"]) == ("own", "mine", "written")
    refused = ["own written", "own made", "secret", "secret made", "shadow", "usr made", "keeper", "keeper killed", "parent"]
    assert {name: saw[name] for name in refused if saw[name] not in NO} == {}
    assert not (st.secret / "new").exists() and (st.own / "file").read_text() == "own"
    assert (st.scratch / "new").read_text() == "written"
    status = dict(line.split(":\t", 1) for line in saw["status"].splitlines() if ":\t" in line)
    assert {name: int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == dict.fromkeys(
        ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), 0
    )
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    if level in APART:
        assert saw["pids"] == [1]
        assert saw["tmp made"] == "written" and saw["tmp"] == ["new"]
        assert set(saw["devices"]) <= {"fd", "full", "null", "random", "shm", "stderr", "stdin", "stdout", "urandom", "zero"}
        assert saw["host name"] != os.uname().nodename
    else:
        assert (saw["tmp made"], saw["tmp"], saw["devices"]) == ("Permission denied",) * 3
    assert saw["root"] == "Permission denied"


REACHES = """
port, wanted = int(sys.argv[1]), sys.argv[2]
def connect(address):
    with socket.create_connection(address, timeout=5):
        return "connected"
def itself():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        return connect(listener.getsockname())
say({
    "node": trial(lambda: connect(("127.0.0.1", port))),
    "itself": trial(itself),
    "datagrams": trial(lambda: socket.socket(type=socket.SOCK_DGRAM).fileno() > 0),
})
"""


@pytest.mark.parametrize("network", ["none", "loopback"])
@pytest.mark.parametrize("level", LEVELS)
def test_a_child_reaches_no_further_than_its_own_loopback(stage: Callable[[Level], Stage], level: Level, network: str):
    st = stage(level)
    reached = st.see("a", REACHES, str(st.tree.port), network, sandbox=st.sandbox(network=network))
    assert reached["node"] != "connected" and reached["datagrams"] is not True
    assert (reached["itself"] == "connected") == (network == "loopback" and level in APART), reached


@pytest.mark.parametrize("level", LEVELS)
def test_an_order_that_names_nothing_gets_nothing(stage: Callable[[Level], Stage], level: Level):
    st = stage(level)
    saw = st.see("a", SEES, str(st.own), str(st.scratch), str(st.secret), str(st.tree.keeper_pid()), sandbox=None)
    mine = ["own", "own made", "scratch", "scratch made", "secret", "secret made", "shadow", "usr made", "keeper", "keeper killed"]
    assert {name: saw[name] for name in mine if saw[name] not in NO} == {}
    reached = st.see("b", REACHES, str(st.tree.port), "", sandbox=None)
    assert reached["node"] != "connected" and reached["itself"] != "connected"


TAKES = """
file = os.memfd_create("bomb")
say("begins")
for _ in range(int(sys.argv[1])):
    os.write(file, b"x" * (1 << 20))
"""


@pytest.mark.parametrize("level", LEVELS)
def test_who_takes_more_memory_than_its_bound_is_ended_and_told_so(stage: Callable[[Level], Stage], level: Level):
    """In a memory file, which no rlimit of memory counts."""
    st = stage(level)
    st.see("modest", TAKES, "20", limits={"memory_bytes": 128 * MIB})
    st.see("greedy", TAKES, "300", limits={"memory_bytes": 128 * MIB})
    end = st.tree.ask("exited", instance="greedy")
    assert (end["signal"], end.get("over_memory")) == (signal.SIGKILL, True)
    st.tree.ask("signal", instance="modest", number=signal.SIGKILL)
    end = st.tree.ask("exited", instance="modest")
    assert (end["signal"], end.get("over_memory")) == (signal.SIGKILL, None)


@pytest.mark.skipif(not ROOT, reason="only root gives uids away")
@pytest.mark.parametrize("level", LEVELS)
def test_each_child_has_a_uid_of_its_own_that_comes_back(stage: Callable[[Level], Stage], level: Level):
    st = stage(level)
    pids = {name: st.spawn(name, "say(1)") for name in ("a", "b", "c")}
    for name in pids:
        st.line(name)  # it executes, and so has become who it is
    given = {name: uid(pid) for name, pid in pids.items()}
    assert len(set(given.values())) == 3 and os.geteuid() not in given.values()
    st.end("b")
    pid = st.spawn("d", "say(1)")
    st.line("d")
    assert uid(pid) == given["b"]
    taken = st.spawn("node's own", "say(1)", sandbox=st.sandbox(own_uid=False))
    st.line("node's own")
    assert uid(taken) == os.geteuid()


MARKS = """
import fcntl
before = [fcntl.fcntl(number, fcntl.F_GETFL) & os.O_NONBLOCK for number in (0, 1, 2)]
for number in (0, 1, 2):
    fcntl.fcntl(number, fcntl.F_SETFL, fcntl.fcntl(number, fcntl.F_GETFL) | os.O_NONBLOCK)
say(before)
"""


@pytest.mark.parametrize("level", [*LEVELS, Level.NONE])
def test_no_open_file_is_shared_by_two_children(stage: Callable[[Level], Stage], level: Level):
    """Else one could tell the other something, by its flags, or hold a lock on it."""
    st = stage(level)
    assert st.see("a", MARKS) == [0, 0, 0]
    assert st.see("b", MARKS) == [0, 0, 0]


FILLS = """
scratch, size = sys.argv[1], int(sys.argv[2])
status = os.stat(scratch)
say({"there": os.listdir(scratch), "own": status.st_uid == os.geteuid(), "mode": status.st_mode & 0o777, "room": os.statvfs(scratch).f_blocks})
def fill():
    descriptor = os.open(scratch, os.O_RDWR | os.O_TMPFILE)
    held.append(descriptor)
    for _ in range(size):
        os.write(descriptor, bytes(1 << 20))
    return "written"
held = []
say(trial(fill))
"""


@pytest.mark.parametrize("level", APART)
def test_a_folder_in_memory_is_empty_and_full_where_it_was_ordered(stage: Callable[[Level], Stage], level: Level):
    st = stage(level)
    st.scratch.chmod(0o700)
    ordered = st.sandbox(in_memory={str(st.scratch): 16 * MIB})
    seen = st.see("a", FILLS, str(st.scratch), "15", sandbox=ordered, limits={"memory_bytes": 256 * MIB})
    assert seen == {"there": [], "own": True, "mode": 0o700, "room": 16 * MIB // 4096}
    assert st.line("a") == "written"
    st.see("b", FILLS, str(st.scratch), "17", sandbox=ordered, limits={"memory_bytes": 256 * MIB})
    assert st.line("b") == "No space left on device"
    assert os.listdir(st.scratch) == ["file"], "nothing of it lies outside"


@pytest.mark.parametrize("level", APART)
def test_what_lies_in_a_folder_in_memory_counts_as_its_memory(stage: Callable[[Level], Stage], level: Level):
    st = stage(level)
    ordered = st.sandbox(in_memory={str(st.scratch): 1024 * MIB})
    seen = st.see("a", FILLS, str(st.scratch), "127", sandbox=ordered, limits={"memory_bytes": 128 * MIB})
    assert seen["room"] == 128 * MIB // 4096, "there is never more room than memory"
    end = st.tree.ask("exited", instance="a")
    assert (end["signal"], end.get("over_memory")) == (signal.SIGKILL, True)


USES = """
def meminfo():
    return {line.split(":")[0]: int(line.split()[1]) for line in read("/proc/meminfo").splitlines()}
say(meminfo())
before = meminfo()["MemFree"]
taken = b"x" * (60 << 20)
while before - meminfo()["MemFree"] < (50 << 10):
    time.sleep(0.01)
say(meminfo())
say(read("/proc/cpuinfo").count("processor\\t"))
"""


@pytest.mark.parametrize("level", APART)
def test_a_child_sees_its_own_limits_and_use_as_the_machine_s(stage: Callable[[Level], Stage], level: Level):
    st = stage(level)
    before = st.see("a", USES, limits={"memory_bytes": 256 * MIB}, sandbox=st.sandbox(cpus=0.5))
    assert before["MemTotal"] == 256 * 1024
    after = st.line("a")
    assert after["MemTotal"] == 256 * 1024 and before["MemFree"] - after["MemFree"] >= 50 * 1024
    assert after["MemAvailable"] <= after["MemFree"]
    assert st.line("a") == 1


@pytest.mark.parametrize("level", LEVELS)
def test_a_child_that_can_t_have_its_walls_is_refused_in_one_line(stage: Callable[[Level], Stage], level: Level):
    st = stage(level)
    st.spawn("first", "say(1)")
    missing, program = str(st.folder / "missing"), str(shutil.copy("/bin/true", st.secret / "program"))
    assert "pid" in st.tree.ask("spawn", instance="b", argv=[program], sandbox=st.sandbox(files=[[program, "read"]]))
    st.tree.ask("forget", instance="b")
    before = at_rest(st.tree.data, st.tree.keeper_pid())
    orders: list[tuple[dict[str, Any], str]] = [
        ({"sandbox": {"files": [[missing, "read"]]}}, missing),
        ({"sandbox": st.sandbox(), "argv": [program]}, program),  # it fails in the child
    ]
    if level is Level.LANDLOCK and ROOT:
        (st.secret / "deep").mkdir()
        st.secret.chmod(0o700)
        orders.append(({"sandbox": st.sandbox(files=[[str(st.secret / "deep"), "read"]])}, str(st.secret)))
    for order, named in orders:
        answer = st.tree.ask("spawn", instance="a", **{"argv": [st.python, "-c", "pass"], **order})
        assert named in answer["refused"] and "\n" not in answer["refused"]
    until(lambda: held(st.tree.data, st.tree.keeper_pid()) == before, within_s=3, what=f"nothing stays of what was refused: {before}")
    st.see("a", "say(1)")  # the name is free, and the keeper goes on


def test_a_group_that_is_there_already_is_a_refusal_too(stage: Callable[[Level], Stage]):
    st = stage(Level.FULL)
    st.spawn("first", "say(1)")
    for top in tops(st.tree.data):
        (top / "i-a").mkdir(exist_ok=True)  # one folder may be reached by several names
    answer = st.tree.ask("spawn", instance="a", argv=[st.python, "-c", "pass"], sandbox=st.sandbox())
    assert "i-a is there already" in answer["refused"] and "\n" not in answer["refused"]
    for top in tops(st.tree.data):
        if (top / "i-a").exists():
            (top / "i-a").rmdir()
    st.see("a", "say(1)")


FAMILY = """
middle = os.fork()
if middle == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    os._exit(0)
os.waitpid(middle, 0)
say(1)
"""


def family(st: Stage, name: str) -> list[Process]:
    """A child and the process that left its session, which somebody adopts: the child itself, if it is process 1 of its own."""
    keeper = st.tree.keeper_pid()
    before = {process.pid for process in descendants(keeper)}
    st.spawn(name, FAMILY)
    st.line(name)
    new = [process for process in descendants(keeper) if process.pid not in before]
    assert len(new) == 2
    return new


@pytest.mark.parametrize("level", LEVELS)
def test_what_left_the_session_ends_with_its_child(stage: Callable[[Level], Stage], level: Level):
    st = stage(level)
    processes = family(st, "a")
    st.tree.ask("signal", instance="a", number=signal.SIGKILL)
    st.tree.ask("exited", instance="a")
    all_gone(processes, within_s=1, what="a family")
    until(lambda: not groups(st.tree.data), within_s=3, what="no group is left")


@pytest.mark.parametrize("victim", ["main", "keeper"])
@pytest.mark.parametrize("level", LEVELS)
def test_after_a_kill_nothing_lives_and_the_next_start_finds_no_group(stage: Callable[[Level], Stage], level: Level, victim: str):
    st = stage(level)
    for number in range(10):
        family(st, f"i{number}")
    assert level is not Level.FULL or groups(st.tree.data)
    st.tree.all()
    os.kill(st.tree.main.pid if victim == "main" else st.tree.keeper_pid(), signal.SIGKILL)
    st.tree.nothing_left(within_s=1)
    st.tree.wait(within_s=5)
    if victim == "keeper":
        assert not tops(st.tree.data), "main removes what its keeper left"
    (st.tree.data / "port").unlink()
    st.tree = st.start()
    st.tree.state()
    until(lambda: not groups(st.tree.data), within_s=3, what="the groups of the dead node are gone")
    st.see("i0", "say(1)")
    st.tree.signal(signal.SIGTERM)
    assert st.tree.wait(within_s=5) == 0
    assert not tops(st.tree.data)


@pytest.mark.parametrize("level", LEVELS)
def test_many_children_in_a_row_leave_nothing(stage: Callable[[Level], Stage], level: Level):
    st = stage(level)
    st.see("first", "say(1)")
    st.end("first")
    keeper, control = st.tree.keeper_pid(), int(st.tree.state()["pid"])
    before = at_rest(st.tree.data, keeper, control)
    assert not before.groups and not before.views
    limits = {"memory_bytes": 64 * MIB, "processes": 20}
    for number in range(count(100 if level is Level.FULL else 30, long=1000)):
        pid = st.tree.spawn(f"i{number}", argv=["/bin/sleep", "600"], sandbox=st.sandbox(cpus=0.5), limits=limits)
        if ROOT and number % 50 == 0:
            assert uid(pid) >= 200_000
        st.end(f"i{number}")
    until(lambda: held(st.tree.data, keeper, control) == before, within_s=5, what=f"as before: {before}")
    pid = st.spawn("last", "say(1)")
    st.line("last")
    assert not ROOT or uid(pid) % 1000 == 0, "the lowest uid is free again"


def test_the_level_without_walls_has_none(stage: Callable[[Level], Stage]):
    """So that what is refused above is refused by the walls."""
    st = stage(Level.NONE)
    saw = st.see("a", SEES, str(st.own), str(st.scratch), str(st.secret), str(st.tree.keeper_pid()))
    assert (saw["secret"], saw["secret made"], saw["tmp made"]) == ("secret", "written", "written")
    reached = st.see("b", REACHES, str(st.tree.port), "")
    assert (reached["node"], reached["itself"], reached["datagrams"]) == ("connected", "connected", True)
