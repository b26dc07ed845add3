"""One request after the other: what goes in, what comes out."""

import json
import math

import pytest

from fornada_sdk.wire.messages import Kind
from tests.unit.sdk.driver import Plane, Start


@pytest.fixture
def plane(start: Start) -> Plane:
    """A model that evaluates the request's `say` as Python."""
    runner = start("""
        import fornada_sdk, math, decimal
        from fornada_sdk import BadRequest, OutOfDeviceMemory, Response
        class Model(fornada_sdk.Model):
            def run(self, request, context):
                return eval(request.body.json["say"], {**globals(), "request": request, "context": context, "fail": fail})
        def fail(error):
            raise error
        class coroutine:
            def __await__(self):
                yield
    """)
    plane = runner.attach()
    plane.ready()
    return plane


@pytest.mark.parametrize(
    ("say", "type", "body"),
    [
        ("{'a': 1, 'ü': [True, None, 1.5]}", "application/json", '{"a":1,"ü":[true,null,1.5]}'.encode()),
        ("[1, 2]", "application/json", b"[1,2]"),
        ("(1, 2)", "application/json", b"[1,2]"),
        ("'text'", "application/json", b'"text"'),
        ("None", "application/json", b"null"),
        ("7", "application/json", b"7"),
        ("b'\\x00\\xff'", "application/octet-stream", b"\x00\xff"),
        ("bytearray(b'ab')", "application/octet-stream", b"ab"),
        ("memoryview(b'ab')", "application/octet-stream", b"ab"),
        ("Response('plain')", "text/plain; charset=utf-8", b"plain"),
        ("Response('{}', type='application/json')", "application/json", b'"{}"'),
        ("Response(b'png', type='image/png')", "image/png", b"png"),
        ("Response({'a': 1})", "application/json", b'{"a":1}'),
        ("{'half': '\\ud83d'}", "application/json", '{"half":"\ufffd"}'.encode()),
        ("{1: 'int key'}", "application/json", b'{"1":"int key"}'),
    ],
)
def test_an_answer_is_sent_as_what_it_is(plane: Plane, say: str, type: str, body: bytes):
    message = plane.end_of(plane.invoke({"say": say}))
    assert message.kind is Kind.ANSWER
    assert message.head.get("status", "ok") == "ok"
    assert message.head.get("type", "application/json") == type
    assert message.body == body


def test_the_usual_answer_has_an_empty_head(plane: Plane):
    assert plane.end_of(plane.invoke({"say": "{}"})).payload == b"\x02\0\0\0{}{}"


def test_a_response_brings_status_and_headers(plane: Plane):
    say = "Response({'a': 1}, status=418, headers={'X-Tea': 'pot', 'Content-Language': 'pt'})"
    head = plane.end_of(plane.invoke({"say": say})).head
    assert head["http_status"] == 418 and head["headers"] == {"x-tea": "pot", "content-language": "pt"}


@pytest.mark.parametrize("header", ["Set-Cookie", "Content-Length", "Content-Type", "X-Bad: thing", "x-new\\nline"])
def test_a_header_that_a_model_may_not_set_is_the_model_s_fault(plane: Plane, header: str):
    head = plane.end_of(plane.invoke({"say": f"Response({{}}, headers={{'{header}': 'v'}})"})).head
    assert head["status"] == "raised" and "header" in head["message"]


@pytest.mark.parametrize("say", ["Response({}, headers={'x-a': 'b\\r\\nx-c: d'})", "Response({}, type='text/html\\r\\nx: y')"])
def test_no_line_can_be_smuggled_into_the_headers(plane: Plane, say: str):
    head = plane.end_of(plane.invoke({"say": say})).head
    assert head["status"] == "raised" and "characters that a header can't hold" in head["message"]


def test_numbers_that_are_not_finite_become_null_and_are_reported(plane: Plane):
    message = plane.end_of(plane.invoke({"say": "{'a': [float('nan'), 1.5, {'b': float('-inf')}], 'c': math.inf}"}))
    assert json.loads(message.body) == {"a": [None, 1.5, {"b": None}], "c": None}
    assert message.head == {"nonfinite": True}


@pytest.mark.parametrize(
    ("say", "status", "message"),
    [
        ("fail(ValueError('no such\\nword'))", "raised", "ValueError: no such word"),
        ("fail(BadRequest('too short'))", "bad_request", "too short"),
        ("fail(BadRequest())", "bad_request", "the model refused the input"),
        ("fail(OutOfDeviceMemory('needs 5, has 3'))", "out_of_memory", "OutOfDeviceMemory: needs 5, has 3"),
        (
            "fail(type('OutOfMemoryError', (RuntimeError,), {})('CUDA out of memory'))",
            "out_of_memory",
            "OutOfMemoryError: CUDA out of memory",
        ),
        ("fail(MemoryError())", "raised", "MemoryError"),
        ("fail(SystemExit(3))", "raised", "SystemExit: model code called exit(3)"),
        ("fail(KeyboardInterrupt())", "raised", "KeyboardInterrupt"),
        ("fail(type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})())", "raised", "Odd"),
        ("{'a': {1, 2}}", "raised", "TypeError: the answer holds a value of type 'set', which is no JSON"),
        ("{'a': decimal.Decimal(1)}", "raised", "TypeError: the answer holds a value of type 'Decimal', which is no JSON"),
        (
            "coroutine()",
            "raised",
            "TypeError: the answer is a coroutine that nobody has awaited: write the function with async def",
        ),
        ("object()", "raised", "TypeError: the answer holds a value of type 'object', which is no JSON"),
        ("{'a': b'raw'}", "raised", "TypeError: the answer holds bytes inside JSON: return them alone, or as base64 text"),
        ("(lambda d: d.update(d=d) or d)({})", "raised", "ValueError: the answer is nested too deeply, or holds itself"),
    ],
)
def test_what_model_code_raises_or_returns_wrongly_is_told_without_a_traceback(plane: Plane, say: str, status: str, message: str):
    answer = plane.end_of(plane.invoke({"say": say}))
    assert answer.kind is Kind.ANSWER and answer.body == b""
    assert answer.head["status"] == status and answer.head["message"] == message
    assert plane.call({"say": "'alive'"}) == "alive"


def test_usage_and_run_time_are_reported(plane: Plane):
    say = "context.usage.update(input_tokens=3, odd=float('nan')) or __import__('time').sleep(0.01) or {}"
    head = plane.end_of(plane.invoke({"say": say})).head
    assert head["usage"] == {"input_tokens": 3}
    assert 0.01 <= head["run_s"] < 5


def test_head_headers_query_and_stream_reach_the_model(plane: Plane):
    say = "[request.headers['X-Thing'], request.headers.get('none'), dict(request.query), request.stream, context.request_id]"
    id = plane.invoke({"say": say}, headers={"x-thing": "h"}, query={"q": "1"}, stream=True, request_id="mine")
    assert plane.answer(id) == ["h", None, {"q": "1"}, True, "mine"]


def test_binary_parts_are_bytes_under_their_names(plane: Plane):
    text = json.dumps(
        {"say": "[request.body.json['image'].hex(), request.body.json['other'], len(request.body.json['audio'])]", "other": 1}
    )
    raw = text.encode() + b"\x89PNG" + b"\0" * 1000
    id = plane.invoke(raw=raw, parts=[["", len(text.encode())], ["image", 4], ["audio", 1000]])
    assert plane.answer(id) == ["89504e47", 1, 1000]


@pytest.mark.parametrize("raw", [b"{", b"", b"[1, NaN]", b"\xff\xfe", b"[" * 100_000])
def test_a_body_that_is_no_json_is_the_caller_s_fault(plane: Plane, raw: bytes):
    head = plane.end_of(plane.invoke(raw=raw)).head
    assert head["status"] == "bad_request" and "JSON" in head["message"]


def test_answers_come_in_the_order_of_the_requests(plane: Plane):
    ids = [plane.next_id() for _ in range(200)]
    plane.send([frame for id in ids for frame in plane.invocation(id, {"say": str(id)})])
    plane.end_of(ids[-1])
    assert [m.id for m in plane.messages if m.kind is Kind.ANSWER] == ids
    assert all(plane.answer(id) == id for id in ids)


def test_several_small_answers_share_a_packet(start: Start):
    runner = start("def handle_request(r, c): return r.body.json")
    plane = runner.attach()
    plane.ready()
    before = plane.packets
    ids = [plane.next_id() for _ in range(64)]
    plane.send([frame for id in ids for frame in plane.invocation(id, 1)])
    plane.end_of(ids[-1])
    assert plane.packets - before <= 16


def test_a_short_answer_does_not_wait_for_a_long_call_behind_it(start: Start):
    runner = start("import time\ndef handle_request(r, c): time.sleep(r.body.json)")
    plane = runner.attach()
    plane.ready()
    short, long = plane.next_id(), plane.next_id()
    plane.send([*plane.invocation(short, 0), *plane.invocation(long, 1)])
    plane.end_of(short, 0.5)
    plane.end_of(long)


def test_twenty_megabytes_both_ways(start: Start):
    runner = start("def handle_request(r, c): return r.body.bytes", serving={"max_body": 25_000_000})
    plane = runner.attach()
    plane.ready()
    data = bytes(range(256)) * 80_000
    message = plane.end_of(plane.invoke(raw=data, type="application/octet-stream"), 20)
    assert message.body == data
    assert message.head["type"] == "application/octet-stream"


def test_large_and_small_requests_share_the_wire(start: Start):
    runner = start("def handle_request(r, c): return len(r.body.bytes)")
    plane = runner.attach()
    plane.ready()
    large = plane.next_id()
    parts = plane.invocation(large, raw=b"x" * 1_000_000)
    small = plane.next_id()
    plane.send([*parts[:3], *plane.invocation(small, raw=b"abc"), *parts[3:]])
    assert plane.answer(small) == 3
    assert plane.answer(large) == 1_000_000


def test_a_request_whose_deadline_passed_while_it_waited_is_not_run(start: Start):
    runner = start("""
        import time
        def handle_request(request, context):
            print("ran", request.body.text)
            time.sleep(0.6)
            return 1
    """)
    plane = runner.attach()
    plane.ready()
    slow = plane.next_id()
    late = plane.next_id()
    plane.send([*plane.invocation(slow, raw=b"slow"), *plane.invocation(late, raw=b"late", left_s=0.1)])
    assert plane.end_of(late).head["status"] == "cancelled"
    assert plane.answer(slow) == 1
    assert [record["line"] for record in runner.records] == ["ran slow"]


def test_numpy_results_become_json(start: Start):
    pytest.importorskip("numpy")
    runner = start("""
        import numpy as np
        def handle_request(request, context):
            return {"scalar": np.float32(0.5), "array": np.arange(4).reshape(2, 2), "int": np.int64(7), "bad": np.array([np.nan, 1.0])}
    """)
    plane = runner.attach()
    plane.ready(30)
    message = plane.end_of(plane.invoke())
    assert message.answer == {"scalar": 0.5, "array": [[0, 1], [2, 3]], "int": 7, "bad": [None, 1.0]}
    assert message.head["nonfinite"] is True
    assert math.isclose(message.answer["scalar"], 0.5)


def test_the_steps_of_a_model_follow_one_another(start: Start):
    runner = start("""
        import fornada_sdk
        class Base(fornada_sdk.Model):
            def preprocess(self, request, context):
                return request.body.json["n"]
        class Model(Base):
            def run(self, inputs, context):
                return inputs + 1
            def postprocess(self, outputs, context):
                return {"n": outputs}
    """)
    plane = runner.attach()
    plane.ready()
    assert plane.call({"n": 1}) == {"n": 2}


def test_a_model_with_run_batch_alone_takes_single_requests(start: Start):
    runner = start("""
        import fornada_sdk
        class Model(fornada_sdk.Model):
            def run_batch(self, batch, context):
                return [request.body.json for request in batch]
    """)
    plane = runner.attach()
    plane.ready()
    assert plane.call([1]) == [1]
