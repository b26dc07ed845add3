"""Everything at once, at random: no request is lost, none is answered twice, and the runner ends as it should."""

import random
import threading
import time

import pytest

from fornada_sdk.wire.messages import STREAM_WINDOW, Kind
from tests.bounds import bound, count
from tests.unit.sdk.driver import Plane, Start

SYNC = """
    import time
    def handle_request(request, context):
        keys = request.body.json
        if "steps" in keys:
            return stream(keys)
        end = time.monotonic() + keys["s"]
        while time.monotonic() < end and not context.cancelled:
            time.sleep(0.003)
        return {"n": keys["n"], "pad": "x" * keys["pad"]}
    def stream(keys):
        for i in range(keys["steps"]):
            time.sleep(keys["s"] / 10)
            yield {"i": i, "pad": "x" * keys["pad"]}
"""
ASYNC = """
    import asyncio
    async def plain(keys):
        await asyncio.sleep(keys["s"])
        return {"n": keys["n"], "pad": "x" * keys["pad"]}
    async def stream(keys):
        for i in range(keys["steps"]):
            await asyncio.sleep(keys["s"] / 10)
            yield {"i": i, "pad": "x" * keys["pad"]}
    class Handle:
        async def __call__(self, request, context):
            keys = request.body.json
            return stream(keys) if "steps" in keys else await plain(keys)
    handle_request = Handle()
"""


@pytest.mark.parametrize(
    ("code", "serving"),
    [
        pytest.param(SYNC, {}, id="inline"),
        pytest.param(SYNC, {"concurrency": 3}, id="threads"),
        pytest.param(ASYNC, {"concurrency": 3}, id="async"),
    ],
)
def test_every_request_has_exactly_one_last_word(start: Start, code: str, serving: dict):
    runner = start(code, serving=serving)
    plane = runner.attach(acknowledge=False)
    plane.ready()
    chance = random.Random(count(8250, long=int(time.time())))
    asked: set[int] = set()
    told: dict[int, list[str]] = {}
    planes = [plane]
    for round in range(count(250, long=3000)):
        body = {"n": round, "s": chance.choice([0, 0, 0.001, 0.012, 0.05]), "pad": chance.choice([0, 0, 100, 30_000, 150_000])}
        if chance.random() < 0.3:
            body["steps"] = chance.randrange(8)
        id = plane.next_id()
        if planes:
            plane.send(plane.invocation(id, body, stream="steps" in body))
            asked.add(id)
        dice = chance.random()
        if dice < 0.25:
            plane.cancel(chance.choice(sorted(asked)))
        elif dice < 0.5:
            plane.credit(id, STREAM_WINDOW)
        elif dice < 0.55:
            acknowledge(plane, told)
        elif dice < 0.58:
            plane.close()
            time.sleep(chance.random() * 0.02)
            plane = runner.attach(acknowledge=False)
            planes.append(plane)
            plane.kind(Kind.HELLO)
        time.sleep(chance.choice([0, 0, 0.001, 0.011]))
    settle(plane, asked, planes, told)
    for id in asked:
        words = told.get(id, [])
        assert len(set(words)) == 1, (id & 0xFFFF, words)
    plane.stop(5)
    assert runner.exit_code() == 0


def acknowledge(plane: Plane, told: dict[int, list[str]]) -> None:
    plane.ack(*[m.id for m in list(plane.messages) if m.kind in (Kind.ANSWER, Kind.END)])


def settle(plane: Plane, asked: set[int], planes: list[Plane], told: dict[int, list[str]]) -> None:
    """Waits until every request has its last word, giving streams their credit meanwhile."""
    end = time.monotonic() + bound(30)
    while time.monotonic() < end:
        told.clear()
        for each in planes:
            for message in list(each.messages):
                if message.kind in (Kind.ANSWER, Kind.END):
                    told.setdefault(message.id, []).append(f"{message.kind.name} {message.payload[:60]!r}")
        missing = asked - set(told)
        if not missing:
            return
        for id in missing:
            plane.credit(id, STREAM_WINDOW)
        time.sleep(0.02)
    raise AssertionError(f"{len(missing)} requests without a last word: {sorted(id & 0xFFFF for id in missing)[:20]}")


def test_a_runner_under_two_control_planes_and_many_threads(start: Start):
    runner = start(SYNC)
    planes = [runner.attach(), runner.attach()]
    for plane in planes:
        plane.ready()
    failures: list[AssertionError] = []

    def work(plane: Plane, seed: int) -> None:
        chance = random.Random(seed)
        try:
            for n in range(100):
                answer = plane.call({"n": n, "s": chance.choice([0, 0, 0.011, 0.02]), "pad": 0})
                assert answer["n"] == n
        except AssertionError as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(plane, seed)) for seed, plane in enumerate(planes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(bound(60))
    assert not failures
