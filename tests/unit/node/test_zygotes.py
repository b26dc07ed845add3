"""What the node asks the keeper for, and from which zygote an instance is forked."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec
import pytest

from fornada.core.names import AccountId, Instant, ModelName, VersionDigest
from fornada.core.policy.zygotes import KEEP_S, RETRY_FIRST_S, SPARE_BYTES, STEADY_S
from fornada.core.ports import Access, Provisioned, Version, ZygoteOrder
from fornada.core.settings import NodeSettings
from fornada.core.specs import spec_from_table
from fornada.node.zygotes import TURN_S, WEIGH_S, Zygotes


class Keeper:
    """Notes what it is asked for."""

    def __init__(self, isolation: str = "full") -> None:
        self.isolation = isolation
        self.zygotes: list[Mapping[str, Any]] = []
        self.on_zygote: Callable[[Mapping[str, Any]], None] = self.zygotes.append
        self.wanted: list[ZygoteOrder] = []
        self.retired: list[str] = []

    def want_zygote(self, order: ZygoteOrder) -> None:
        self.wanted.append(order)

    def retire_zygote(self, zygote: str) -> None:
        self.retired.append(zygote)

    def say(self, state: str, **more: Any) -> None:
        self.on_zygote({"zygote": self.wanted[-1].zygote, "state": state, "pid": 7, "reason": "", **more})


class Log:
    def __init__(self) -> None:
        self.said: list[tuple[str, dict[str, Any]]] = []

    def info(self, event: str, /, **fields: Any) -> None:
        self.said.append((event, fields))

    warning = info


class World:
    def __init__(self, keeper: Keeper | None = None, **settings: Any) -> None:
        self.keeper = keeper or Keeper()
        self.now = 1000.0
        self.log = Log()
        self.holds = 0
        self.zygotes = Zygotes(
            self.keeper,
            settings=NodeSettings(**settings),
            inherited={"TZ": "UTC", "SECRET": "x"},
            log=self.log,
            now=lambda: Instant(self.now),
            host_bytes=4000,
            measure=lambda pid: self.holds,
        )
        self.count = 0

    def up(self, version: Version | None = None, provisioned: Provisioned | None = None) -> str:
        """An instance comes up; the zygote that it was to be forked from."""
        self.count += 1
        zygote = self.zygotes.start(f"i{self.count}", version or a_version(), provisioned or PROVISIONED)
        self.zygotes.ready(f"i{self.count}")
        return zygote


PROVISIONED = Provisioned(
    python="/data/environments/4082/bin/python", environment="/data/environments/4082", folder="/f", artifacts={}, sdk="/sdk"
)


def a_version(
    *,
    account: str = "local",
    engine: str = "python",
    env: dict[str, str] | None = None,
    preload: list[str] | None = None,
    memory: str = "512MiB",
) -> Version:
    table: dict[str, Any] = {"name": "@test/m", "engine": engine, "env": env or {}, "python": {"preload": preload or []}}
    table["resources"] = {"memory": memory}
    return Version(
        model=ModelName("@test/m"),
        digest=VersionDigest("0" * 12),
        account=AccountId(account),
        spec=spec_from_table(table),
        folder="/f",
        lock="",
        created=0.0,
    )


def test_the_first_is_executed_and_the_next_forked():
    world = World()
    assert world.zygotes.start("i", a_version(), PROVISIONED) == ""
    world.zygotes.turn()
    assert world.keeper.wanted == [], "nothing may take the first start's time away"
    world.zygotes.ready("i")
    (order,) = world.keeper.wanted
    assert order.spares == 1
    world.keeper.say("importing")
    assert world.up() == ""
    world.keeper.say("ready", import_s=0.5, threads=1.0, failed={})
    assert world.up() == order.zygote
    assert len(world.keeper.wanted) == 1


def test_a_zygote_gets_packages_and_nothing_of_a_model():
    world = World()
    world.up(a_version(engine="onnx", preload=["mine"], env={"MINE": "1", "OMP_NUM_THREADS": "8"}))
    (order,) = world.keeper.wanted
    assert order.argv[-5:] == ["/sdk", "mine", "numpy", "onnxruntime", "fornada_sdk.runner.engines.onnx"]
    assert order.sandbox.files == [("/data/environments/4082", Access.READ), ("/sdk", Access.READ)]
    assert (order.env["CUDA_VISIBLE_DEVICES"], order.env["OMP_NUM_THREADS"], order.env["MINE"], order.env["TZ"]) == ("", "1", "1", "UTC")
    assert "SECRET" not in order.env


@pytest.mark.parametrize(
    ("memory", "bound"), [("64MiB", 1024**3), ("512MiB", 1024**3), ("3GiB", 3 * 1024**3), ("8GiB", 8 * 1024**3), ("64GiB", 8 * 1024**3)]
)
def test_a_zygote_may_have_what_its_model_declares_within_bounds(memory: str, bound: int):
    world = World()
    world.up(a_version(memory=memory))
    (order,) = world.keeper.wanted
    assert order.limits.memory_bytes == bound


def test_instances_share_one_only_where_all_is_the_same():
    def key(version: Version, provisioned: Provisioned = PROVISIONED) -> str:
        world = World()
        world.up(version, provisioned)
        return world.keeper.wanted[0].zygote

    usual = key(a_version())
    others = [
        key(a_version(account="other")),
        key(a_version(engine="onnx")),
        key(a_version(env={"A": "1"})),
        key(a_version(preload=["mine"])),
        key(a_version(), msgspec.structs.replace(PROVISIONED, sdk="/another")),
        key(a_version(), msgspec.structs.replace(PROVISIONED, environment="/data/environments/4083")),
    ]
    assert usual == key(a_version())
    assert len({usual, *others}) == len(others) + 1


def test_an_external_server_has_none():
    world = World()
    version = msgspec.structs.replace(a_version(), spec=spec_from_table({"name": "@t/m", "engine": "command", "command": {"args": ["x"]}}))
    world.up(version)
    assert world.keeper.wanted == []


@pytest.mark.parametrize("world", [World(zygotes=False), World(Keeper("landlock"))], ids=["switched off", "landlock"])
def test_where_there_are_none_all_are_executed(world: World):
    assert world.up() == world.up() == ""
    assert world.keeper.wanted == []


def test_what_a_spare_keeps_is_counted_against_the_memory_of_all_and_shown():
    world = World()
    world.up()
    world.keeper.say("importing")
    world.keeper.say("ready", import_s=0.5, threads=1.0, failed={})
    assert world.zygotes.spare_bytes() == SPARE_BYTES
    world.keeper.say("ready", import_s=0.5, threads=1.0, failed={}, spare_bytes=20 * SPARE_BYTES)
    why = world.zygotes.why("i1")
    assert why is not None
    assert why["spare_bytes"] == 20 * SPARE_BYTES == world.zygotes.spare_bytes()
    world.now += TURN_S
    world.zygotes.turn()
    assert world.keeper.wanted[-1].spares == 0, "one alone takes more than all may"
    assert world.zygotes.spare_bytes() == 0


def test_one_that_failed_is_not_asked_for_before_its_time_and_the_reason_is_shown():
    world = World()
    world.up()
    world.keeper.say("importing")
    world.keeper.say("unfit", reason="the import of mine left 2 threads running")
    world.keeper.say("ended", reason="the import of mine left 2 threads running")
    assert world.up() == ""
    assert len(world.keeper.wanted) == 1
    assert world.zygotes.why("i2") == {"zygote": "none", "pid": 0, "reason": "the import of mine left 2 threads running"}
    world.now += max(RETRY_FIRST_S, TURN_S)
    world.zygotes.turn()
    assert len(world.keeper.wanted) == 2
    world.keeper.say("importing")
    world.keeper.say("ready", import_s=0.5, threads=1.0, failed={"mine": "ImportError: no", "numpy": "ModuleNotFoundError: no"})
    assert world.zygotes.why("i2") == {
        "zygote": "ready",
        "pid": 7,
        "reason": "",
        "import_s": 0.5,
        "threads": 1.0,
        "failed": {"mine": "ImportError: no"},
    }


def killed(world: World, *, after_s: float) -> None:
    """The zygote was ready for so long."""
    world.keeper.say("importing")
    world.keeper.say("ready", failed={})
    world.now += after_s
    world.keeper.say("ended", reason="it was killed by signal 9 (SIGKILL)")


def wait_for_the_next(world: World) -> float:
    """Seconds until another is asked for."""
    began, asked = world.now, len(world.keeper.wanted)
    while len(world.keeper.wanted) == asked:
        assert world.now - began < 7200
        world.now += 0.5
        world.zygotes.replan()
    return world.now - began


def test_one_that_was_killed_after_long_service_is_soon_succeeded_and_one_that_dies_at_once_later_and_later():
    world = World()
    world.up()
    for _ in range(5):
        killed(world, after_s=STEADY_S)
        assert wait_for_the_next(world) == RETRY_FIRST_S
    waits = []
    for _ in range(5):
        killed(world, after_s=1)
        waits.append(wait_for_the_next(world))
    assert waits == [RETRY_FIRST_S * 2**count for count in range(1, 6)]


def test_unused_it_is_told_to_go_once():
    world = World()
    world.up()
    world.keeper.say("ready", failed={})
    world.zygotes.ended("i1")
    for _ in range(3):
        world.now += KEEP_S
        world.zygotes.turn()
    assert world.keeper.retired == [world.keeper.wanted[0].zygote]
    world.keeper.say("ended", reason="it exited with code 70")
    assert world.log.said[-1][1]["reason"] == "the node let it go", "an end that the node asked for looks like no fault"
    assert world.up() == ""
    assert len(world.keeper.wanted) == 2, "the next use brings another"


def test_a_predecessors_is_kept_for_a_while_and_used_again():
    before = World()
    before.up()
    keeper = Keeper()
    keeper.zygotes.append({"zygote": before.keeper.wanted[0].zygote, "state": "ready", "pid": 9, "reason": "", "failed": {}})
    world = World(keeper)
    assert world.up() == before.keeper.wanted[0].zygote
    assert world.zygotes.count() == [(("ready",), 1)]


def test_a_successor_knows_whose_zygote_its_predecessor_s_instances_use():
    world = World()
    world.up()
    world.keeper.say("ready", failed={}, import_s=0.5, threads=1, spare_bytes=3_000_000)
    before = world.zygotes.why("i1")
    assert before is not None and before["zygote"] == "ready"
    keeper = Keeper()
    keeper.zygotes.append(
        {
            "zygote": world.keeper.wanted[-1].zygote,
            "state": "ready",
            "pid": 7,
            "failed": {},
            "import_s": 0.5,
            "threads": 1,
            "spare_bytes": 3_000_000,
        }
    )
    after = World(keeper)
    after.zygotes.adopted("i1", world.zygotes.of("i1"))
    assert after.zygotes.why("i1") == before
    after.now += KEEP_S + TURN_S
    after.zygotes.turn()
    assert not keeper.retired, "an instance of it runs"
    after.zygotes.ended("i1")
    after.now += KEEP_S + TURN_S
    after.zygotes.turn()
    assert keeper.retired == [world.keeper.wanted[-1].zygote]


def test_an_adopted_instance_without_a_zygote_of_its_environment_has_none_and_asks_for_none():
    world = World()
    world.zygotes.adopted("i1", "4082-0123")
    world.zygotes.adopted("i2", "")
    world.zygotes.ready("i1")
    assert world.zygotes.why("i1") == {"zygote": "none", "pid": 0, "reason": ""}
    assert world.zygotes.why("i2") is None
    assert not world.keeper.wanted


def weigh(world: World) -> None:
    asyncio.run(world.zygotes.weigh())


def test_what_they_hold_is_known_and_read_again_now_and_then():
    world = World(spares=0)
    world.up()
    world.holds = 500
    weigh(world)
    assert world.zygotes.held_bytes() == 0, "it isn't there yet"
    world.keeper.say("ready")
    weigh(world)
    assert world.zygotes.held_bytes() == 500
    world.holds = 400
    weigh(world)
    assert world.zygotes.held_bytes() == 500
    world.now += WEIGH_S
    weigh(world)
    assert world.zygotes.held_bytes() == 400
    world.keeper.say("ended")
    assert world.zygotes.held_bytes() == 0


def test_one_that_holds_too_much_of_the_host_goes_and_is_not_tried_again():
    world = World(spares=0)
    world.up()
    world.holds = 1001
    world.keeper.say("ready")
    weigh(world)
    world.zygotes.replan()
    assert len(world.keeper.retired) == 1
    world.keeper.say("ended")
    world.up()
    world.now += KEEP_S / 2
    world.zygotes.replan()
    assert len(world.keeper.wanted) == 1


def test_they_give_way_to_a_model_and_come_back_when_there_is_as_much():
    world = World(spares=0)
    world.zygotes.give_way(True, spare_bytes=lambda: 0)
    world.up()
    world.holds = 500
    world.keeper.say("ready")
    weigh(world)
    world.zygotes.give_way(False, spare_bytes=lambda: 0)
    assert not world.keeper.retired, "nobody waits"
    world.zygotes.give_way(True, spare_bytes=lambda: 0)
    assert len(world.keeper.retired) == 1
    world.keeper.say("ended")
    for spare in (0, 499):
        world.zygotes.give_way(False, spare_bytes=partial(int, spare))
        world.up()
    assert len(world.keeper.wanted) == 1
    world.zygotes.give_way(False, spare_bytes=lambda: 500)
    assert len(world.keeper.wanted) == 2
