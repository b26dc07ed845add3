"""What will probably be asked is brought up before anybody asks: into free room, one at a time, and never in anybody's way."""

import asyncio

from fornada.core.names import Instant, ModelName
from tests.loops.fake_runner import Behaviour
from tests.loops.virtual import VirtualClock, virtual
from tests.loops.world import World, now

A, B, C = (ModelName(f"@test/{letter}") for letter in "abc")
LOAD_S = 3.0


class Calendar(VirtualClock):
    """Hours of day pass while the machine sleeps: a day of heartbeats would take a minute."""

    slept_s = 0.0

    def wall(self) -> float:
        return super().wall() + self.slept_s

    def skip(self, *, hours: int) -> None:
        """To a minute before an hour begins."""
        self.slept_s += hours * 3600.0 - self.wall() % 3600.0 - 60.0


def put(world: World, name: str, **serving: float) -> None:
    world.put(name, behaviour=Behaviour(load_s=LOAD_S), serving=serving)


def brought_up(world: World, name: str = "") -> int:
    return len([event for event in world.happened("instance.prefetched") if not name or event["model"] == name])


async def used_much(world: World, name: str, requests: int = 20) -> None:
    for _ in range(requests):
        await world.answer(name, echo=1)


async def pushed_out(world: World, **serving: float) -> None:
    """A is used much and has to go for B, the only one that there is room for."""
    put(world, A, **serving)
    put(world, B)
    await used_much(world, A)
    await world.answer(B, echo=1)
    assert world.state(A) == "stopped" and world.state(B) == "ready"


@virtual
async def test_who_was_pushed_out_comes_back_by_itself_as_soon_as_there_is_room():
    async with World(max_resident=1, prefetch=True) as world:
        await pushed_out(world)
        await asyncio.sleep(20.0)
        assert world.state(A) == "stopped" and not brought_up(world), "nobody goes for a guess"
        await world.node.unload(B, grace_s=0.0)
        await world.until_state("ready", A, within_s=15.0 + LOAD_S)
        why = world.node.why(A)
        assert "brought up before anybody asked" in why["summary"]
        began = now()
        await world.answer(A, echo=2)
        assert now() - began < 0.1, "no load was in the way"
        assert "before anybody asked" not in world.node.why(A)["summary"]


@virtual
async def test_nothing_is_brought_up_unless_the_operator_wants_it():
    async with World(max_resident=1) as world:
        await pushed_out(world)
        await world.node.unload(B, grace_s=0.0)
        await asyncio.sleep(60.0)
        assert world.state(A) == "stopped" and not brought_up(world)


@virtual
async def test_what_an_operator_unloaded_stays_down():
    async with World(max_resident=1, prefetch=True) as world:
        await pushed_out(world)
        await world.node.unload(A, grace_s=0.0)
        await world.node.unload(B, grace_s=0.0)
        await asyncio.sleep(60.0)
        assert world.state(A) == world.state(B) == "stopped" and not brought_up(world)


@virtual
async def test_whoever_is_asked_for_takes_its_place_at_once_even_while_it_comes_up():
    async with World(max_resident=1, prefetch=True) as world:
        await pushed_out(world)
        put(world, C)
        await world.node.unload(B, grace_s=0.0)
        await world.until(lambda: world.node.why(A)["step"] == "loading", within_s=15.0)
        began = now()
        await world.answer(C, echo=1)
        assert now() - began < LOAD_S + 0.5, "it didn't wait until the guess had come up"
        assert world.state(A) == "stopped" and world.state(C) == "ready"


@virtual
async def test_a_request_that_comes_while_it_comes_up_is_its_reason_from_then_on():
    async with World(max_resident=1, prefetch=True) as world:
        await pushed_out(world)
        await world.node.unload(B, grace_s=0.0)
        await world.until(lambda: world.node.why(A)["step"] == "loading", within_s=15.0)
        first, second = world.ask(A, echo=1), world.ask(B, echo=2)
        assert (await first.result())["echo"] == 1
        assert (await second.result())["echo"] == 2
        assert first.at < second.at, "it isn't a guess any more, and serves before it goes"
        assert brought_up(world, A) == 1


@virtual
async def test_what_nobody_used_goes_again_and_rests():
    clock = Calendar()
    async with World(max_resident=1, prefetch=True, clock=clock) as world:
        await pushed_out(world, idle_timeout_s=100_000.0)
        await world.node.unload(B, grace_s=0.0)
        await world.until_state("ready", A, within_s=15.0 + LOAD_S)
        await asyncio.sleep(330.0)
        assert world.state(A) == "stopped"
        assert "it was brought up before anybody asked, and nobody did" in world.node.why(A)["summary"]
        for _ in range(3):
            clock.skip(hours=1)
            await asyncio.sleep(120.0)
        assert brought_up(world, A) == 1, "it isn't usual at any other hour"
        assert world.state(A) == "stopped"


@virtual
async def test_idleness_still_ends_what_is_asked_often():
    async with World(prefetch=True) as world:
        put(world, A, idle_timeout_s=2.0)
        await used_much(world, A)
        await world.until_state("stopped", A, within_s=10.0)
        passed_s = world.clock.wall() % 3600.0
        await asyncio.sleep(min(600.0, 3599.0 - passed_s))
        assert not brought_up(world)


@virtual
async def test_what_is_usual_at_an_hour_of_day_is_there_when_the_hour_begins():
    clock = Calendar()
    async with World(prefetch=True, clock=clock) as world:
        put(world, A, idle_timeout_s=60.0)
        clock.skip(hours=1)
        await asyncio.sleep(61.0)
        for _ in range(100):
            await asyncio.sleep(3.0)
            await world.answer(A, echo=1)
        await world.until_state("stopped", A, within_s=100.0)
        clock.skip(hours=1)
        await asyncio.sleep(120.0)
        assert world.state(A) == "stopped" and not brought_up(world), "nothing is usual at this hour"
        clock.skip(hours=23)
        await world.until(lambda: brought_up(world, A) == 1, within_s=120.0)
        assert clock.wall() % 3600.0 < 30.0
        await world.until_state("ready", A)


@virtual
async def test_nobody_goes_for_a_guess_that_is_pinned_on_its_way():
    async with World(max_resident=1, prefetch=True) as world:
        await pushed_out(world)
        world.provision.fetch_s = 5.0
        await world.node.unload(B, grace_s=0.0)
        await world.until(lambda: world.node.why(A)["step"] == "fetching", within_s=15.0)
        put(world, C)
        world.provision.fetch_s = 0.0
        await world.answer(C, echo=1)
        await world.node.pin(A, pinned=True)
        await asyncio.sleep(60.0)
        assert world.state(C) == "ready" and world.state(A) == "stopped"


@virtual
async def test_what_somebody_loads_is_no_guess_any_more():
    async with World(max_resident=1, prefetch=True) as world:
        await pushed_out(world, idle_timeout_s=100_000.0)
        await world.node.unload(B, grace_s=0.0)
        await world.until_state("ready", A, within_s=15.0 + LOAD_S)
        await world.node.load(A, deadline=Instant(now() + 1.0))
        await asyncio.sleep(1000.0)
        assert world.state(A) == "ready" and "before anybody asked" not in world.node.why(A)["summary"]
