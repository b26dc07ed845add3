"""A sink that fails over what a model answered is a bug of ours: its caller is told, and neither the runner nor anybody else notices."""

import asyncio
from typing import Any

import pytest

from fornada.core.errors import InternalFault
from tests.loops.virtual import virtual
from tests.loops.world import Caller, World


class Breaks(Caller):
    """Fails at one of the calls of core.requests.Sink, as code does that meets data nobody thought of."""

    def __init__(self, at: str, error: type[Exception]) -> None:
        super().__init__()
        setattr(self, at, self._break)
        self._error = error

    def _break(self, *_: Any) -> None:
        raise self._error("nobody thought of this")


@virtual
@pytest.mark.parametrize("error", [KeyError, ValueError, OverflowError])
@pytest.mark.parametrize(
    ("at", "asked"), [("answer", {"echo": 1}), ("answer", {"big": 100_000}), ("stream_begins", {"steps": 3}), ("item", {"steps": 3})]
)
async def test_a_sink_that_fails_costs_its_caller_alone(at, asked, error):
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    async with World() as world:
        world.put(serving={"concurrency": 4})
        await world.answer(echo=0)
        broken = world.ask(caller=Breaks(at, error), **asked)
        others = [world.ask(echo=number) for number in range(3)]
        with pytest.raises(InternalFault, match="its log says more"):
            await broken.result()
        assert [(await other.result())["echo"] for other in others] == [0, 1, 2]
        assert [type(each["exception"]) for each in told] == [error]
        assert (await world.answer(echo=9))["load_count"] == 1
