"""Zygotes and what they fork, with the keeper's own walls and books: without walls, as root, and as an ordinary user."""

import os
import shutil
import signal
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

import pytest

from tests.bounds import count
from tests.harness.waiting import until
from tests.process.zygote_stand import FIRST_BLOCK, Stand

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
FORMS = [
    pytest.param(("none", False), id="none"),
    pytest.param(("namespaces", False), id="root", marks=ROOT),
    pytest.param(("full", False), id="root-cgroups", marks=ROOT),
    pytest.param(("namespaces", True), id="user"),
]
APART = FORMS[1:]


def _start(form: tuple[str, bool]) -> Iterator[Callable[..., Stand]]:
    level, user = form
    if user and os.geteuid() == 0 and not shutil.which("setpriv"):
        pytest.skip("setpriv is missing")
    if level != "none" and subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "true"], capture_output=True).returncode != 0:
        pytest.skip("this machine allows no user namespaces")
    made: list[Stand] = []

    def start(**options: Any) -> Stand:
        made.append(Stand(level, user=user, **options))
        return made[-1]

    yield start
    for each in made:
        each.end()


@pytest.fixture(params=FORMS)
def start(request: pytest.FixtureRequest) -> Iterator[Callable[..., Stand]]:
    yield from _start(request.param)


@pytest.fixture(params=APART)
def start_apart(request: pytest.FixtureRequest) -> Iterator[Callable[..., Stand]]:
    yield from _start(request.param)


@pytest.fixture
def stand(start: Callable[..., Stand]) -> Stand:
    return start()


@pytest.fixture
def apart(start_apart: Callable[..., Stand]) -> Stand:
    return start_apart()


def gone(pid: int) -> None:
    until(lambda: not os.path.exists(f"/proc/{pid}"), within_s=5, what=f"the end of {pid}")


def test_an_instance_is_forked_and_answers(stand: Stand):
    warm = stand.ready(modules=("json.tool", "no_such_thing"))
    assert warm["failed"].keys() == {"no_such_thing"}
    up = stand.up("one")
    assert stand.ask("one", hello=1) == {"hello": 1}
    assert stand.run("one", "import sys; answer = 'json.tool' in sys.modules") is True
    assert os.path.exists(f"/proc/{up['pid']}")


def test_its_end_is_told(stand: Stand):
    stand.ready()
    for name in ("one", "two"):
        stand.up(name)
        stand.ask(name)
    stand.tell("signal", instance="one", number=signal.SIGKILL)
    ended = stand.hear("ended", "one")
    assert (ended["code"], ended["signal"]) == (None, 9)
    stand.tell("signal", instance="two", number=signal.SIGTERM)
    ended = stand.hear("ended", "two")
    assert ended["signal"] is None
    assert stand.state()["forks"] == 0


def test_it_retires_with_its_last_instance(stand: Stand):
    zygote = stand.ready()
    one = stand.up("one")
    stand.tell("retire", zygote="z")
    assert stand.ask("one", still=True) == {"still": True}
    stand.tell("signal", instance="one", number=signal.SIGKILL)
    stand.hear("ended", "one")
    stand.hear("zygote", "z", state="ended")
    gone(zygote["pid"])
    gone(one["pid"])


def test_a_killed_zygote_takes_its_instances_along(stand: Stand):
    zygote = stand.ready()
    up = [stand.up(name) for name in ("one", "two")]
    os.kill(zygote["pid"], signal.SIGKILL)
    for name in ("one", "two"):
        assert stand.hear("ended", name)["signal"] == 9
    stand.hear("zygote", "z", state="ended")
    for one in up:
        gone(one["pid"])
    stand.spawn("three")
    assert stand.hear("unforked", "three")["why"] == "there is no zygote"
    stand.events.clear()
    stand.ready()
    stand.up("four")


def test_a_keeper_that_ends_leaves_nothing(stand: Stand):
    zygote = stand.ready(spares=1)
    one = stand.up("one")
    os.kill(stand.process.pid, signal.SIGKILL)
    stand.process.wait()
    for pid in (zygote["pid"], one["pid"]):
        gone(pid)


def test_one_that_leaves_threads_behind_is_unfit_and_says_why(stand: Stand):
    code = "import threading, time; threading.Thread(target=time.sleep, args=(600,), daemon=True).start()"
    (stand.src / "busy.py").write_text(code)
    stand.want(modules=("json.tool", "busy"))
    assert stand.hear("zygote", "z", state="unfit")["reason"] == "the import of busy left 1 threads running"
    stand.hear("zygote", "z", state="ended")
    stand.spawn("one")
    stand.hear("unforked", "one")


HOSTILE = """
import os, socket, struct, threading, time
from fornada_sdk.wire.framing import frame
from fornada_sdk.wire import channel
from fornada_sdk.wire.messages import Kind
from fornada_sdk.runner import zygote
class Hostile(zygote.Zygote):
    def _heard(self, message):
        keeper = self._keeper
        {code}
zygote.Zygote = Hostile
"""
LIES = {
    "silence": "time.sleep(600)",
    "another's name": 'keeper.send(Kind.FORKED, {"name": "nobody"}, [os.pidfd_open(1)])',
    "no descriptor": 'keeper.send(Kind.FORKED, {"name": message.head["name"]})',
    "no pidfd": 'keeper.send(Kind.FORKED, {"name": message.head["name"]}, [os.open("/dev/null", os.O_RDONLY)])',
    "many descriptors": 'keeper.send(Kind.FORKED, {"name": message.head["name"]}, [os.open("/dev/null", 0) for _ in range(200)])',
    "an end before its beginning": 'keeper.send(Kind.GONE, {"name": message.head["name"], "status": 0})',
    "an odd end": 'super()._heard(message); keeper.send(Kind.GONE, {"name": message.head["name"], "status": -1, "signal": "9"})',
    "a flood": 'any(keeper.send(Kind.WARM, {"modules": []}) for _ in range(1000))',
    "no JSON": 'keeper._sock.send(struct.pack("<I", 5) + b"hello")',
    "half a character": 'keeper._sock.send(frame(Kind.FORKED, 0, b\'{"name":"one","reason":"\\\\ud800"}\'))',
    "something large": 'keeper._queue_bytes = 1 << 30; keeper.send(Kind.FORKED, {"name": "x" * (1 << 25)})',
    "the keeper's pidfd": "peer = keeper._sock.getsockopt(socket.SOL_SOCKET, 77, 4); "  # SO_PEERPIDFD
    'keeper.send(Kind.FORKED, {"name": message.head["name"]}, [struct.unpack("i", peer)[0]]); '
    'os.write(message.descriptors[3], b"it failed")',
    "its own pidfd": 'keeper.send(Kind.FORKED, {"name": message.head["name"]}, [os.pidfd_open(os.getpid())])',
    "its own pidfd and an early end": 'keeper.send(Kind.FORKED, {"name": message.head["name"]}, [os.pidfd_open(os.getpid())]); os._exit(0)',
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("start", FORMS[:2], indirect=True)
def test_what_a_hostile_zygote_says_costs_it_its_office_and_nobody_else_anything(start: Callable[..., Stand], lie: str):
    stand = start(fork_s=1.0)
    (stand.src / "hostile.py").write_text(HOSTILE.replace("{code}", LIES[lie]))
    stand.ready(key="good")
    stand.up("neighbour", key="good")
    stand.ready(key="bad", modules=("hostile",))
    stand.spawn("one", key="bad")
    # What it has really forked may be up for a moment before it goes with its zygote.
    until(partial(_over, stand, "one"), within_s=20, what="the end of it")
    stand.hear("zygote", "bad", state="unfit" if lie == "silence" else "ended")
    assert stand.ask("neighbour", well=1) == {"well": 1}
    stand.ready(key="bad")
    stand.up("two", key="bad")


def _over(stand: Stand, name: str) -> bool:
    return stand.heard("unforked", name) or stand.heard("ended", name)


DEAD_BEFORE_IT_IS_HEARD_OF = """
pid = os.fork() or os._exit(3)
pidfd = os.pidfd_open(pid)
os.waitpid(pid, 0)
for each in message.descriptors:
    os.close(each)
time.sleep({report_read_s})
keeper.send(Kind.FORKED, {{"name": message.head["name"]}}, [pidfd])
time.sleep({between_s})
keeper.send(Kind.GONE, {{"name": message.head["name"], "status": 3}})
"""


@pytest.mark.parametrize("report_read_s", [0, 0.3])
@pytest.mark.parametrize("between_s", [0, 0.3])
@pytest.mark.parametrize("start", FORMS[:2], indirect=True)
def test_a_fork_that_had_ended_before_the_keeper_heard_of_it_is_executed(
    start: Callable[..., Stand], report_read_s: float, between_s: float
):
    stand = start()
    code = textwrap.indent(DEAD_BEFORE_IT_IS_HEARD_OF.format(report_read_s=report_read_s, between_s=between_s), " " * 8)
    (stand.src / "hostile.py").write_text(HOSTILE.replace("        {code}", code))
    stand.ready(key="good")
    stand.up("neighbour", key="good")
    stand.ready(key="bad", modules=("hostile",))
    stand.spawn("one", key="bad")
    assert stand.hear("unforked", "one")["why"] == "it exited with code 3"
    assert stand.ask("neighbour", well=1) == {"well": 1}


STEPS = {
    "fork": "super()._heard(message)",
    "own": "keeper.send(Kind.FORKED, {'name': name}, [os.pidfd_open(os.getpid())])",
    "live": "pid = os.fork() or time.sleep(600); keeper.send(Kind.FORKED, {'name': name}, [os.pidfd_open(pid)])",
    "dead": "pid = os.fork() or os._exit(3); fd = os.pidfd_open(pid); os.waitpid(pid, 0); keeper.send(Kind.FORKED, {'name': name}, [fd])",
    "kill": "[os.kill(child, 9) for child in (*self._names, pid) if child]",
    "refuse": "keeper.send(Kind.FORKED, {'name': name, 'reason': 'no'})",
    "gone": "keeper.send(Kind.GONE, {'name': name, 'status': 0})",
    "signalled": "keeper.send(Kind.GONE, {'name': name, 'signal': 9})",
    "report": "message.descriptors and os.write(message.descriptors[3], b'it failed')",
    "close": "[os.close(each) for each in message.descriptors]; message.descriptors.clear()",
    "talk": "message.descriptors and os.write(message.descriptors[2], b'nonsense')",
    "warm": "keeper.send(Kind.WARM, {})",
    "unfit": "keeper.send(Kind.UNFIT, {'reason': 'so'})",
    "reap": "self._reap()",
    "wait": "time.sleep(0.05)",
}
"""What a zygote may do about an order, in any order."""
STEPS_MOST = 7


@pytest.mark.parametrize("start", FORMS[:2], indirect=True)
def test_whatever_a_zygote_does_in_whatever_order_the_keeper_and_others_go_on(start: Callable[..., Stand]):
    stand = start(fork_s=1.0)
    stand.ready(key="good")
    stand.up("neighbour", key="good")
    for seed in range(count(12, long=150)):
        random = Random(seed)
        steps = random.choices(list(STEPS), k=random.randint(1, STEPS_MOST))
        lines = "\n        ".join(["name, pid = message.head['name'], 0", *(STEPS[step] for step in steps), "os._exit(0)"])
        (stand.src / f"hostile{seed}.py").write_text(HOSTILE.replace("{code}", lines))
        stand.ready(key="bad", modules=(f"hostile{seed}",))
        stand.spawn(f"one{seed}", key="bad")
        until(partial(_over, stand, f"one{seed}"), within_s=20, what=f"the end of it; {seed}: {steps}")
        assert stand.hear("zygote", "bad", state="ended"), (seed, steps)
        assert stand.ask("neighbour", well=seed) == {"well": seed}, (seed, steps)


def test_what_cannot_be_executed_is_unfit(stand: Stand):
    stand.tell("want", zygote="z", spares=0, **stand.command(["/no/such/python"], []))
    assert "/no/such/python" in stand.hear("zygote", "z", state="unfit")["reason"]
    stand.hear("zygote", "z", state="ended")


def test_a_fork_whose_place_is_missing_is_executed_instead(stand: Stand):
    stand.ready()
    stand.tell("spawn", instance="lost", zygote="z", assignment={}, memo={}, **{**stand.command(["/bin/true"], []), "cwd": "/no/such"})
    assert "/no/such" in stand.hear("unforked", "lost")["why"]
    stand.up("found")
    assert stand.state()["forks"] == 1


# ---- behind walls


LOOK = """
import os
answer = {
    "uid": os.getuid(), "pid": os.getpid(),
    "processes": sorted(name for name in os.listdir("/proc") if name.isdigit()),
    "network": open("/proc/net/dev").read().count(":"),
    "status": {line.split(":")[0]: line.split(":")[1].strip() for line in open("/proc/self/status")},
    "descriptors": sorted(os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}")),
}
"""


def test_an_instance_is_alone_and_has_no_rights(apart: Stand):
    apart.ready(spares=1)
    for name in ("one", "two"):
        apart.up(name)
        seen = apart.run(name, LOOK)
        assert (seen["uid"], seen["pid"], seen["processes"], seen["network"]) == (1000, 1, ["1"], 1)
        assert {seen["status"][cap] for cap in ("CapEff", "CapPrm", "CapBnd", "CapAmb")} == {"0000000000000000"}
        assert (seen["status"]["NoNewPrivs"], seen["status"]["Seccomp"]) == ("1", "2")
        assert not any("pidfd" in link or "mount" in link for link in seen["descriptors"])


TRY = """
import os
def tried(call):
    try:
        return call() and "done"
    except OSError as error:
        return type(error).__name__
answer = {
    "write model": tried(lambda: open(FOLDER + "/model.py", "w")),
    "write sdk": tried(lambda: open(SRC + "/fornada_sdk/api.py", "a")),
    "see a sibling": tried(lambda: os.listdir(SIBLING)),
    "see the host": tried(lambda: open("/etc/shadow")),
    "write scratch": tried(lambda: open("mine", "w")),
}
"""


def test_an_instance_sees_its_own_files_alone(apart: Stand):
    apart.ready()
    for name in ("one", "two"):
        apart.up(name)
    names = {"FOLDER": apart.place / "one-folder", "SRC": apart.src, "SIBLING": apart.place / "two-scratch"}
    assert os.listdir(apart.place / "one-scratch") == []
    done = apart.run("one", "".join(f"{name} = {str(path)!r}\n" for name, path in names.items()) + TRY)
    assert done.pop("write scratch") == "done"
    assert set(done.values()) <= {"PermissionError", "FileNotFoundError", "OSError"}, done
    assert os.listdir(apart.place / "one-scratch") == ["mine"]


@pytest.mark.parametrize("spares", [0, 1])
def test_a_fork_has_its_folder_in_memory(apart: Stand, spares: int):
    apart.ready(spares=spares)
    if spares:
        until(lambda: [each for each in apart.state()["spares"] if each["there"]], within_s=10, what="a spare")
    scratch = apart.place / "one-scratch"
    assert apart.up("one", sandbox={"in_memory": {str(scratch): 16 << 20}})["spare"] is bool(spares)
    told = apart.run("one", f"import os; answer = [os.statvfs({str(scratch)!r}).f_blocks, open({str(scratch / 'mine')!r}, 'w').write('x')]")
    assert told == [(16 << 20) // 4096, 1]
    assert os.listdir(scratch) == []


@ROOT
def test_each_instance_has_a_uid_of_its_zygotes_block():
    for stand in _one(("namespaces", False)):
        stand.ready()
        pids = [stand.up(name)["pid"] for name in ("one", "two")]
        uids = [os.stat(f"/proc/{pid}").st_uid for pid in pids]
        assert uids == [FIRST_BLOCK + 1, FIRST_BLOCK + 2]
        assert os.stat(stand.place / "one-scratch").st_uid == FIRST_BLOCK + 1
        stand.tell("signal", instance="one", number=signal.SIGKILL)
        stand.hear("ended", "one")
        assert os.stat(f"/proc/{stand.up('three')['pid']}").st_uid == FIRST_BLOCK + 1


def _one(form: tuple[str, bool]) -> Iterator[Stand]:
    for start in _start(form):
        yield start()


# ---- spares


def test_a_spare_becomes_an_instance(apart: Stand):
    apart.ready(spares=1)
    spare = until(lambda: [each for each in apart.state()["spares"] if each["there"]], within_s=10, what="a spare")[0]
    up = apart.up("one")
    assert up["spare"] is True
    assert up["pid"] == spare["pid"]
    assert apart.ask("one", hello=1) == {"hello": 1}
    following = until(lambda: [each for each in apart.state()["spares"] if each["there"]], within_s=10, what="the next spare")[0]
    assert following["pid"] != spare["pid"]


def test_what_a_spare_keeps_is_told_once(apart: Stand):
    apart.ready(spares=1)

    def told() -> list[int]:
        apart.state()  # reads what was said
        return [event["spare_bytes"] for event in apart.events if event["what"] == "zygote" and "spare_bytes" in event]

    (held,) = until(told, within_s=10, what="the memory of a spare")
    assert 256 * 1024 < held < 64 * 1024 * 1024


def test_a_spare_that_dies_is_replaced(apart: Stand):
    apart.ready(spares=1)
    first = until(lambda: [each for each in apart.state()["spares"] if each["there"]], within_s=10, what="a spare")[0]
    os.kill(first["pid"], signal.SIGKILL)
    until(lambda: [each for each in apart.state()["spares"] if each["there"] and each["pid"] != first["pid"]], within_s=10, what="another")


def test_fewer_spares_are_wanted(apart: Stand):
    apart.ready(spares=3)
    until(lambda: sum(each["there"] for each in apart.state()["spares"]) == 3, within_s=10, what="three spares")
    apart.want(spares=1)
    until(lambda: apart.state()["forks"] == 1, within_s=10, what="one spare")


def test_forking_and_ending_leaves_no_descriptors(apart: Stand):
    apart.ready(spares=1)

    def cycle(name: str) -> None:
        apart.up(name)
        apart.tell("signal", instance=name, number=signal.SIGKILL)
        apart.hear("ended", name)

    for number in range(3):
        cycle(f"first-{number}")
    before = until(lambda: _settled(apart), within_s=10, what="a spare")
    for number in range(10):
        cycle(f"again-{number}")
    # The stand keeps the output of each instance that has ended, as a control plane's record would.
    assert until(lambda: _settled(apart), within_s=10, what="a spare") <= before + 10


def _settled(stand: Stand) -> int:
    state = stand.state()
    return int(state["descriptors"]) if len(state["spares"]) == 1 and state["spares"][0]["there"] else 0


@ROOT
def test_one_whose_imports_take_too_much_says_so():
    started = _start(("full", False))
    stand = next(started)()
    # Of its own accord it would hold some 15 MB.
    stand.want(limits={"memory_bytes": 8 * 1024**2})
    assert stand.hear("zygote", "z", state="ended")["reason"] == "it used more memory than it may"
    next(started, None)
