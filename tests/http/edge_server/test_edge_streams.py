"""Streams: each item at once, nothing that looks whole when it isn't, and no memory for readers who don't read."""

import json
import time
from functools import partial

import pytest

from fornada.core.errors import BadRequest, Busy, DeadlinePassed, RunnerDied
from fornada.core.requests import AnswerHead
from tests.bounds import bound
from tests.harness.client import request_bytes
from tests.http.edge_server.conftest import RUN, Served, Windowed
from tests.unit.edge.fakes import Submitted, answer, items, refuse, stay_silent, until

A = RUN + "@test/a"
STREAM = b'{"stream":true}'


def test_items_are_events_and_done_ends_them(edge: Served):
    edge.inference.behaviour = items(b'{"step":0}', b'{"step":1}')
    with edge.connect() as connection:
        for _ in range(2):
            connection.send_request("POST", A, STREAM)
            stream = connection.events_to_end()
            assert stream.head.headers["content-type"] == "text/event-stream"
            assert stream.head.headers["x-accel-buffering"] == "no"
            assert stream.head.headers["cache-control"] == "no-cache"
            assert stream.items == [{"step": 0}, {"step": 1}]
            assert stream.done and stream.complete
    assert edge.inference.last.request.stream and edge.inference.last.head.stream
    assert json.loads(edge.inference.last.body) == {"stream": True}


def test_each_item_is_at_the_reader_when_it_is_made(edge: Served):
    edge.inference.behaviour = stay_silent
    with edge.connect() as connection:
        connection.send_request("POST", A, STREAM)
        until(lambda: edge.inference.requests)
        sink = edge.inference.last.sink
        edge.tell(sink.stream_begins, AnswerHead())
        edge.tell(sink.item, b'{"n":0}')
        head = connection.read_head()
        assert head.status == 200
        events = connection.read_events()
        assert next(events).json() == {"n": 0}
        for number in range(1, 5):
            time.sleep(0.05)  # the case itself: a model that takes its time
            told = time.monotonic()
            edge.tell(sink.item, b'{"n":%d}' % number)
            event = next(events)
            assert event.json() == {"n": number}
            assert event.at - told < bound(0.04)
        edge.tell(sink.stream_ends, None)
        assert next(events).data == "[DONE]"


def test_only_the_body_decides_whether_it_is_a_stream(edge: Served):
    edge.inference.behaviour = items(b'{"n":0}', b'{"n":1}')
    for value in (b"false", b"null", b"0"):
        response = edge.fetch("POST", A, b'{"stream":%b}' % value, headers={"accept": "text/event-stream"})
        assert response.result == {"items": [{"n": 0}, {"n": 1}]}
        assert not edge.inference.last.request.stream
    edge.inference.behaviour = items()
    assert edge.run({}).result == {"items": []}


def test_a_failure_in_a_stream_is_an_error_event_and_the_end(edge: Served):
    edge.inference.behaviour = items(b'{"n":0}', error=RunnerDied("the runner's process ended"))
    with edge.connect() as connection:
        connection.send_request("POST", A, STREAM)
        stream = connection.events_to_end()
        assert connection.at_end(within_s=2)
    assert stream.items == [{"n": 0}]
    assert not stream.done and not stream.complete, "no final chunk"
    (error,) = stream.errors
    assert error.name == "error" and stream.events[-1] is error
    body = error.json()
    assert body["errors"][0]["code"] == 3101 and body["error"]["code"] == "3101"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [(RunnerDied("x"), 502, 3101), (BadRequest("x"), 400, 5006), (Busy("x"), 429, 3040), (DeadlinePassed("x"), 408, 3046)],
)
def test_a_failure_before_the_first_item_has_a_real_status(edge: Served, error, status: int, code: int):
    edge.inference.behaviour = refuse(error)
    assert edge.run({"stream": True}).status == status
    edge.inference.behaviour = items(error=error)
    response = edge.run({"stream": True})
    assert (response.status, response.code) == (status, code)
    assert response.headers["content-type"] == "application/json"
    edge.inference.behaviour = items(b"{}", error=error)
    assert edge.run({}).status == status, "collected items are no half answer"


def test_line_breaks_in_items_cant_forge_events(edge: Served):
    edge.inference.behaviour = items(b'{"a":\n"b"\n\n}', b'["x",\r1\r\n]')
    with edge.connect() as connection:
        connection.send_request("POST", A, STREAM)
        stream = connection.events_to_end()
    assert [event.name for event in stream.events] == ["", "", ""]
    assert stream.events[1].data == '["x",\n1\n]'


def test_a_stream_of_the_models_own_type_goes_out_as_it_is(edge: Served):
    for stream in (b"{}", STREAM):
        edge.inference.behaviour = items(b"RIFF", b"", b"....", type="audio/wav")
        response = edge.fetch("POST", A, stream)
        assert response.body == b"RIFF...."
        assert response.headers["content-type"] == "audio/wav"
    edge.inference.behaviour = items(b"RIFF", type="audio/wav", error=RunnerDied("x"))
    with edge.connect() as connection:
        connection.send_request("POST", A, b"{}")
        connection.read_head()
        assert connection.rest() == b"4\r\nRIFF\r\n", "and no end"


def test_http_1_0_readers_get_the_stream_without_chunks(edge: Served):
    edge.inference.behaviour = items(b'{"n":0}')
    with edge.connect() as connection:
        connection.send(b"POST %b HTTP/1.0\r\nContent-Length: 15\r\n\r\n%b" % (A.encode(), STREAM))
        response = connection.read_response()
    assert response.body == b'data: {"n":0}\n\ndata: [DONE]\n\n'


def test_what_a_reader_takes_is_given_back_to_the_model_and_no_more(edge: Served):
    edge.inference.behaviour = stay_silent
    with edge.connect(receive_buffer=4096, timeout_s=30) as connection:
        connection.send_request("POST", A, STREAM)
        until(lambda: edge.inference.requests)
        model = Windowed(edge, edge.inference.last, 200)
        for _ in range(50):
            model.go_on()
            time.sleep(0.01)  # the case itself: nobody reads
        assert model.sent < 8_000_000, "the kernel's buffers, ours, and a window"
        assert model.is_bounded()
        connection.read_head()
        model.read(connection)


def test_collected_items_are_taken_at_once_and_bounded(edge: Served):
    item = b'"' + b"x" * 1_000_000 + b'"'
    edge.inference.behaviour = stay_silent
    with edge.connect(timeout_s=20) as connection:
        connection.send_request("POST", A, b"{}")
        until(lambda: edge.inference.requests)
        submitted = edge.inference.last
        edge.tell(submitted.sink.stream_begins, AnswerHead())
        for number in range(1, 4):
            edge.tell(submitted.sink.item, item)
            assert submitted.taken == number * len(item)
        edge.tell(submitted.sink.stream_ends, None)
        assert len(connection.read_response().result["items"]) == 3
    edge.inference.behaviour = items(*[item] * 70)
    response = edge.run({})
    assert (response.status, response.code) == (500, 3103)
    assert "stream" in response.message
    assert edge.inference.last.left, "the work is cancelled"


def test_a_stream_waits_for_its_turn_in_the_pipeline(edge: Served):
    edge.inference.behaviour = stay_silent
    with edge.connect() as connection:
        connection.send(request_bytes(edge.address, "POST", A, b"{}") + request_bytes(edge.address, "POST", A, STREAM) * 2)
        until(lambda: len(edge.inference.requests) == 3)
        first, second, third = edge.inference.requests
        edge.tell(second.sink.stream_begins, AnswerHead())
        edge.tell(second.sink.item, b'{"n":0}')
        assert second.taken == 0, "nobody has taken it yet"
        edge.tell(third.sink.stream_begins, AnswerHead())
        edge.tell(third.sink.item, b'{"n":7}')
        edge.tell(third.sink.stream_ends, None)
        edge.tell(first.sink.answer, AnswerHead(), b"1")
        assert connection.read_response().result == 1
        head = connection.read_head()
        assert head.status == 200
        events = connection.read_events()
        assert next(events).json() == {"n": 0}
        until(lambda: second.taken == 7)
        edge.tell(second.sink.item, b'{"n":1}')
        edge.tell(second.sink.stream_ends, None)
        assert [event.data for event in events] == ['{"n":1}', "[DONE]"]
        assert [event.data for event in connection.events_to_end().events] == ['{"n":7}', "[DONE]"]


def test_leaving_a_stream_is_told_at_once(edge: Served):
    edge.inference.behaviour = stay_silent
    for way in ("close", "reset", "half_close"):
        with edge.connect() as connection:
            connection.send_request("POST", A, STREAM)
            until(lambda: not edge.inference.last.left if edge.inference.requests else False)
            submitted = edge.inference.last
            edge.tell(submitted.sink.stream_begins, AnswerHead())
            edge.tell(submitted.sink.item, b"{}")
            connection.read_head()
            getattr(connection, way)()
            until(partial(left, submitted), what=way)
        edge.inference.requests.clear()


def test_a_paused_reader_that_leaves_is_seen(edge: Served):
    edge.inference.behaviour = stay_silent
    with edge.connect(receive_buffer=4096) as connection:
        connection.send_request("POST", A, STREAM)
        until(lambda: edge.inference.requests)
        submitted = edge.inference.last
        edge.tell(submitted.sink.stream_begins, AnswerHead())
        for _ in range(300):
            edge.tell(submitted.sink.item, b'"' + b"x" * 30_000 + b'"')
        connection.reset()
        until(lambda: submitted.left, what="it is seen although the reader takes nothing")


def left(submitted: Submitted) -> bool:
    return submitted.left


@pytest.mark.parametrize("said", [b"", b"{", b'{"a":}', b"nonsense", b'{"a":"\xff"}', b"1 2"])
def test_what_a_runner_says_is_json_or_the_models_fault(edge: Served, said: bytes):
    edge.inference.behaviour = answer(said)
    refused = edge.fetch("POST", A, b"{}")
    assert (refused.status, refused.code) == (500, 3103), refused.body
    edge.inference.behaviour = items(b'{"n":0}', said)
    refused = edge.fetch("POST", A, b"{}")
    assert (refused.status, refused.code) == (500, 3103), "items that were to be put together"


def test_an_item_that_is_no_json_breaks_the_stream_and_ends_the_work(edge: Served):
    edge.inference.behaviour = stay_silent
    with edge.connect() as connection:
        connection.send_request("POST", A, STREAM)
        until(lambda: edge.inference.requests)
        sink = edge.inference.last.sink
        edge.tell(sink.stream_begins, AnswerHead())
        edge.tell(sink.item, b'{"n":0}')
        edge.tell(sink.item, b'{"n":')
        stream = connection.events_to_end()
        assert stream.items[0] == {"n": 0}
        assert not stream.done and not stream.complete
        until(lambda: edge.inference.last.left)
