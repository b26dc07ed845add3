"""The record of choices: nothing unless it is wanted, everything that decides if it is, and no more bytes than were asked for."""

from fornada.core.policy.record import Came, Gone, Known, Moment, Ready, read
from fornada.node.recorder import NAME
from tests.loops.virtual import virtual
from tests.loops.world import World


@virtual
async def test_nothing_is_written_unless_the_operator_wants_it():
    async with World(max_resident=1) as world:
        world.put()
        await world.answer(echo=1)
        assert not list(world.data_dir.rglob(NAME))


@virtual
async def test_requests_steps_and_plans_are_written_in_their_order():
    async with World(max_resident=1, record_choices="1MiB") as world:
        for name in ("@test/a", "@test/b"):
            world.put(name)
            await world.answer(name, echo=1)
        entries = read((world.data_dir / "logs" / NAME).read_bytes().splitlines())
        kinds = [type(entry) for entry in entries if not isinstance(entry, Moment)]
        assert kinds == [Known, Came, Ready, Known, Came, Gone, Ready]
        plans = [entry for entry in entries if isinstance(entry, Moment)]
        assert all(entry.planned_anew() == entry.plan for entry in plans)
        assert len([key for entry in plans for key in entry.made.evict]) == 1


@virtual
async def test_the_record_never_grows_beyond_its_bound():
    async with World(max_resident=1, record_choices="20KiB") as world:
        for name in ("@test/a", "@test/b"):
            world.put(name)
        for _ in range(40):
            for name in ("@test/a", "@test/b"):
                await world.answer(name, echo=1)
        files = sorted((world.data_dir / "logs").glob(f"{NAME}*"))
        assert len(files) == 2
        assert sum(file.stat().st_size for file in files) <= 22 * 1024
