"""max_batch > 1: requests that wait at the same time go through run_batch together, and each fails alone."""

import pytest

from fornada_sdk.wire.messages import Kind
from tests.unit.sdk.driver import Message, Plane, Start

MODEL = """
    import time, fornada_sdk
    from fornada_sdk import BadRequest
    class Model(fornada_sdk.Model):
        def preprocess(self, request, context):
            keys = request.body.json
            if keys.get("early"):
                raise BadRequest("early")
            return keys
        {ASYNC}def run_batch(self, batch, context):
            print("batch", [keys["n"] for keys in batch], context.request_id)
            if any(keys.get("first") for keys in batch):
                {SLEEP}
            if any(keys.get("bad") for keys in batch):
                raise BadRequest("bad")
            if any(keys.get("short") for keys in batch):
                return []
            return [BadRequest("returned") if keys.get("returned") else {"n": keys["n"], "size": len(batch)} for keys in batch]
        def postprocess(self, outputs, context):
            if outputs["n"] == -1:
                raise ValueError("late")
            return outputs
"""
SYNC = MODEL.replace("{ASYNC}", "").replace("{SLEEP}", "time.sleep(0.3)")
ASYNC = MODEL.replace("{ASYNC}", "async ").replace("{SLEEP}", "import asyncio; await asyncio.sleep(0.3)")

WAYS = [
    pytest.param(SYNC, {}, id="inline"),
    pytest.param(SYNC, {"concurrency": 2}, id="threads"),
    pytest.param(ASYNC, {}, id="async"),
]


def send_all(plane: Plane, bodies: list[dict]) -> list[Message]:
    """While a first request is under way, so that the others are there together."""
    first = plane.invoke({"n": 0, "first": True})
    ids = [plane.next_id() for _ in bodies]
    plane.send([frame for id, body in zip(ids, bodies, strict=True) for frame in plane.invocation(id, body)])
    answers = [plane.end_of(id) for id in ids]
    assert plane.answer(first)["n"] == 0
    return answers


@pytest.mark.parametrize(("code", "serving"), WAYS)
def test_what_waits_goes_together_up_to_max_batch(start: Start, code: str, serving: dict):
    runner = start(code, serving={"max_batch": 4, "max_wait_ms": 50, **serving})
    plane = runner.attach()
    assert plane.ready()["pipelining"] >= 4
    answers = send_all(plane, [{"n": n} for n in range(1, 9)])
    assert [answer.answer["n"] for answer in answers] == list(range(1, 9))
    assert max(answer.answer["size"] for answer in answers) > 1
    assert all(answer.answer["size"] <= 4 for answer in answers)


@pytest.mark.parametrize("fault", ["bad", "early", "returned"])
@pytest.mark.parametrize(("code", "serving"), WAYS)
def test_one_bad_item_fails_alone(start: Start, code: str, serving: dict, fault: str):
    runner = start(code, serving={"max_batch": 8, "max_wait_ms": 50, **serving})
    plane = runner.attach()
    plane.ready()
    answers = send_all(plane, [{"n": n, fault: n == 3} for n in range(1, 9)])
    assert [answer.head.get("status", "ok") for answer in answers] == ["bad_request" if n == 3 else "ok" for n in range(1, 9)]
    assert [answer.answer["n"] for n, answer in enumerate(answers, 1) if n != 3] == [1, 2, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(("code", "serving"), WAYS)
def test_a_failing_postprocess_and_outputs_of_the_wrong_number(start: Start, code: str, serving: dict):
    runner = start(code, serving={"max_batch": 4, "max_wait_ms": 50, **serving})
    plane = runner.attach()
    plane.ready()
    late, fine = send_all(plane, [{"n": -1}, {"n": 2}])
    assert late.head["status"] == "raised" and late.head["message"] == "ValueError: late"
    assert fine.answer["n"] == 2
    short = plane.end_of(plane.invoke({"n": 5, "short": True}))
    assert short.head["message"] == "ValueError: run_batch returned 0 outputs for 1 inputs"


def test_a_batch_is_tied_to_all_its_requests(start: Start):
    runner = start(SYNC, serving={"max_batch": 4})
    plane = runner.attach()
    plane.ready()
    ids = [plane.next_id() for _ in range(3)]
    plane.send([frame for n, id in enumerate(ids, 1) for frame in plane.invocation(id, {"n": n})])
    plane.end_of(ids[-1])
    (record,) = [record for record in runner.records if record["line"].startswith("batch [1, 2, 3]")]
    assert record["request_id"] == "r-1,r-2,r-3"


def test_max_wait_ms_gathers_what_comes_one_by_one(start: Start):
    runner = start(SYNC, serving={"max_batch": 3, "max_wait_ms": 2000})
    plane = runner.attach()
    plane.ready()
    ids = []
    for n in range(3):
        ids.append(plane.invoke({"n": n}))
        plane.wait(lambda m: m.kind is Kind.READY)
    assert [plane.answer(id, 1.5)["size"] for id in ids] == [3, 3, 3]


def test_a_cancelled_request_is_left_out_of_its_batch(start: Start):
    runner = start(SYNC, serving={"max_batch": 4})
    plane = runner.attach()
    plane.ready()
    first = plane.invoke({"n": 0, "first": True})
    runner.wait_line(lambda line: "batch [0]" in line)
    ids = [plane.invoke({"n": n}) for n in (1, 2)]
    plane.cancel(ids[0])
    assert plane.end_of(ids[0], 0.25).head["status"] == "cancelled"
    assert plane.answer(ids[1]) == {"n": 2, "size": 1}
    assert plane.answer(first)["n"] == 0


def test_streams_out_of_a_batch(start: Start):
    runner = start(
        """
        import fornada_sdk
        class Model(fornada_sdk.Model):
            def run_batch(self, batch, context):
                return [({"i": i} for i in range(request.body.json)) for request in batch]
        """,
        serving={"max_batch": 4},
    )
    plane = runner.attach()
    plane.ready()
    ids = [plane.next_id() for _ in range(3)]
    plane.send([frame for n, id in enumerate(ids) for frame in plane.invocation(id, n)])
    assert [plane.end_of(id).kind for id in ids] == [Kind.END] * 3
    assert [len(plane.items(id)) for id in ids] == [0, 1, 2]
