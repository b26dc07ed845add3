"""Whatever happens, in whatever order, whoever is killed: the book is what lives, and no device is promised twice."""

import asyncio
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from fornada.core.errors import FornadaError
from fornada.core.names import ModelName
from fornada.core.settings import FakeDeviceSettings
from tests.bounds import bound, count
from tests.loops.fake_runner import Behaviour
from tests.loops.virtual import virtual
from tests.loops.world import World

MIB = 1024**2
TRUE_WITHIN_S = 5.0
LONGEST_S = 200.0
LOOK_S = 0.05
FAKES = [FakeDeviceSettings(total="600MiB", release_delay_ms=700), FakeDeviceSettings(total="500MiB", foreign="100MiB")]
TAKES = {"@test/a": (300, 300), "@test/b": (100, 350), "@test/c": (500, 50), "@test/d": (0, 200), "@test/e": (400, 400)}
"""Model -> MiB (declared, taken)."""
NAMES = sorted(TAKES)
SLEEPERS: dict[str, Any] = {"@test/a": {}, "@test/b": {}, "@test/c": {"fails_to": "wake"}, "@test/e": {"dies_going_to": "sleep"}}

DEEDS = [
    *(("ask", name) for name in NAMES * 6),
    *((what, name) for what in ("work", "unload", "kill", "load", "reset", "deploy", "sleep", "sleep") for name in NAMES),
    *(("wait", seconds) for seconds in (0.004, 0.05, 0.3, 0.8, 1.5) for _ in range(6)),
    *(("xid", fault) for fault in (("cuda:0", 79), ("cuda:1", 31), ("cuda:0", 31))),
    *(("clear", device) for device in ("cuda:0", "cuda:1") for _ in range(2)),
    *(("crash", "") for _ in range(4)),
]
"""As often as they come: mostly requests and time, now and then something bad."""
ACTIONS = st.lists(st.sampled_from(DEEDS), min_size=15, max_size=40)


def behaviour(name):
    takes: dict[str, Any] = {"books": TAKES[name][1] * MIB, "books_after_s": 0.3, "load_s": 0.2, "stop_s": 0.1}
    return Behaviour(**takes, sleeps=name in SLEEPERS, sleep_s=0.2, wake_s=0.2, **SLEEPERS.get(name, {}))


def put(world, name):
    declared = {"device_memory": f"{TAKES[name][0]}MiB"}
    return world.put(name, behaviour=behaviour(name), resources={"device": "cuda", **declared}, serving={"idle_timeout_s": 30})


async def act(world, what, which):
    name = ModelName(str(which))
    match what:
        case "ask":
            return [world.ask(name, echo=1, timeout_s=20)]
        case "work":
            return [world.ask(name, sleep_s=1.0, timeout_s=20)]
        case "load":
            return [asyncio.ensure_future(world.node.load(name, deadline=world.clock.now() + 20))]
        case "sleep":
            return [asyncio.ensure_future(world.node.sleep(name))]
        case "unload":
            return [asyncio.ensure_future(world.node.unload(name, grace_s=0.5))]
        case "reset":
            await world.node.reset(name)
        case "kill":
            for process in world.keeper.alive:
                if process.runner.assignment["model"] == name:
                    process.signal(9)
        case "deploy":
            world.catalog.changed(put(world, name).model)
        case "wait":
            await watched(world, which)
        case "xid":
            world.node.patch_device(which[0], {"xid": which[1]})
        case "clear":
            world.node.patch_device(which, {"clear": True})
    return []


def no_device_is_promised_twice(world):
    for view in world.node.devices():
        if view["kind"] == "fake":
            foreign = view["foreign_bytes"] + view["lingering_bytes"]
            assert view["reserved_bytes"] + foreign <= view["total_bytes"], view
            assert view["used_bytes"] + view["foreign_bytes"] <= view["total_bytes"], view


async def watched(world, seconds):
    """Lets time pass, and looks all along."""
    ends = world.clock.now() + seconds
    no_device_is_promised_twice(world)
    while world.clock.now() < ends:
        await asyncio.sleep(LOOK_S)
        no_device_is_promised_twice(world)


def the_book_is_what_lives(world):
    living = {process.instance: process.runner for process in world.keeper.alive}
    views = {view["id"]: view for view in world.node.devices()}
    held = {holder["instance"] for view in views.values() for holder in view["holders"]}
    assert held - {""} == set(living), "who holds is who lives"
    for id, view in views.items():
        if view["kind"] != "fake":
            continue
        booked = sum(runner._held.get(id, 0) for runner in living.values())
        assert view["used_bytes"] == booked and view["lingering_bytes"] == 0, view
        for holder in view["holders"]:
            assert holder["bytes"] >= holder["live_bytes"] == living[holder["instance"]]._held.get(id, 0)


@pytest.mark.timeout(bound(900))  # an example takes a tenth of a second, but to make one that fails short takes hundreds of them
@hypothesis.settings(max_examples=count(25, long=1000))
@hypothesis.given(ACTIONS)
@virtual
async def test_the_book_is_true_after_any_sequence_of_events_and_kills(actions):
    settings: dict[str, Any] = {"fakes": FAKES, "max_wait_s": 5.0, "kill_s": 1.0, "drain_s": 2.0}
    world = World(**settings)
    for name in NAMES:
        put(world, name)
    pending: list[Any] = []
    await world.__aenter__()
    for what, which in actions:
        if what == "crash":
            assert not world.happened("ledger.corrected"), "it is right by itself"
            keeper, catalog = await world.crash()
            keeper.behaviours = world.keeper.behaviours
            for task in pending:
                if isinstance(task, asyncio.Future):
                    task.cancel()
            pending = []
            world._folder.cleanup()
            world = World(keeper=keeper, catalog=catalog, **settings)
            await world.__aenter__()
            await asyncio.sleep(LOOK_S)  # who sleeps is charged in full until its first word: nobody is placed on that
        else:
            pending += await act(world, what, which)
        await watched(world, 0.0)
    await watched(world, TRUE_WITHIN_S)
    for waiting in pending:
        try:
            await (asyncio.wait_for(waiting, LONGEST_S) if isinstance(waiting, asyncio.Future) else waiting.result())
        except (FornadaError, asyncio.CancelledError):
            pass  # a refusal is an answer too
    await asyncio.sleep(TRUE_WITHIN_S)
    the_book_is_what_lives(world)
    assert not world.happened("ledger.corrected"), "it is right by itself"
    for name in NAMES:
        await world.node.unload(ModelName(name), grace_s=0.0)
    await asyncio.sleep(1.0)
    assert [view["used_bytes"] for view in world.node.devices()[1:]] == [0, 0]
    assert all(view["reserved_bytes"] == 0 and not view["holders"] for view in world.node.devices())
    await world.__aexit__(None)
