"""An answer whose head says how long it took goes a short way through the link. What it means is what it means on the long one."""

import asyncio
from typing import Any

import pytest

from fornada.core.errors import FornadaError, ModelRaised, RunnerDied
from fornada.core.requests import AnswerHead
from fornada_sdk.wire.framing import frame
from fornada_sdk.wire.messages import HEAD_PREFIX, Kind, with_head
from tests.loops.virtual import virtual
from tests.loops.world import Caller, World


class Listens(Caller):
    head = AnswerHead()

    def answer(self, head: AnswerHead, body: bytes | memoryview) -> None:
        super().answer(head, body)
        self.head = head


async def answered(payload: bytes) -> tuple[Any, AnswerHead]:
    """What becomes of a call that a runner answers with `payload`."""
    async with World() as world:
        world.put()
        await world.answer(echo=1)
        caller = Listens()
        world.ask(caller=caller, sleep_s=5.0)
        await asyncio.sleep(0.1)
        runner = world.keeper.runners()[0]
        (live,) = runner._working
        runner._socket.send(frame(Kind.ANSWER, live, payload))
        return await caller.result(), caller.head


@virtual
@pytest.mark.parametrize("head", [b'{"run_s":0.25}', b'{"run_s":0.25,"usage":{"input_tokens":3}}', b'{"usage":{},"run_s":0.25}'])
async def test_the_time_and_the_body_arrive(head):
    answer, told = await answered(with_head(head) + b'{"a":1}')
    assert answer == {"a": 1} and told.run_s == 0.25


@virtual
@pytest.mark.parametrize(
    ("payload", "error"),
    [
        (with_head(b'{"run_s":0.25,"status":"raised","message":"broke"}'), ModelRaised),
        (with_head(b'{"run_s":0.25,"status":"cancelled"}'), RunnerDied),
        (with_head(b'{"run_s":0.25,"status":"unheard of"}'), RunnerDied),
        (with_head(b'{"run_s":"long"}') + b"{}", RunnerDied),
        (with_head(b'{"run_s":') + b"{}", RunnerDied),
        (HEAD_PREFIX.pack(15) + b'{"run_s":0.25}', RunnerDied),
        (HEAD_PREFIX.pack(2**32 - 1) + b'{"run_s":0.25}', RunnerDied),
        (b'\0\0{"run_s":', RunnerDied),
    ],
)
async def test_a_head_that_is_none_or_no_success_is_taken_for_it(payload: bytes, error: type[FornadaError]):
    with pytest.raises(error):
        await answered(payload)
