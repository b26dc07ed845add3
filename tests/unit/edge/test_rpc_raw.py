"""Messages that are walked by hand mean what protobuf's own parser and serializer make of them."""

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import pytest
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from hypothesis import given

from fornada.core.errors import BadRequest
from fornada.edge.dialects.oip.rpc import inference_pb2 as pb
from fornada.edge.dialects.oip.rpc.exchange import RpcExchange
from fornada.edge.dialects.oip.rpc.raw import FIELDS_MOST, in_stream, parted, received, written
from fornada.edge.headers import SMALL_BODY

NAMES = st.text(max_size=8)
RAWS = st.lists(st.binary(max_size=300), max_size=5)


@st.composite
def requests(draw: st.DrawFn) -> Any:
    request = pb.ModelInferRequest(model_name=draw(NAMES), model_version=draw(NAMES), id=draw(NAMES))
    for name in draw(st.lists(NAMES, max_size=4)):
        tensor = request.inputs.add(name=name, datatype="FP32", shape=draw(st.lists(st.integers(0, 1 << 40), max_size=3)))
        tensor.contents.fp32_contents.extend(draw(st.lists(st.floats(width=32, allow_nan=False), max_size=3)))
    for key in draw(st.lists(NAMES, max_size=3, unique=True)):
        request.parameters[key].int64_param = draw(st.integers(-5, 1 << 40))
    request.raw_input_contents.extend(draw(RAWS))
    return request


def whole(data: bytes) -> Any:
    """What the parser says of it; None: it is no message."""
    try:
        return pb.ModelInferRequest.FromString(data)
    except DecodeError:
        return None


@given(request=requests(), behind=requests())
def test_a_message_comes_apart_into_itself_and_its_raw_contents(request: Any, behind: Any):
    data = request.SerializeToString() + behind.SerializeToString()  # two behind one another are one, and its fields lie anywhere
    rest, raws = parted(data)
    expected = whole(data)
    assert [bytes(raw) for raw in raws] == list(expected.raw_input_contents)
    expected.ClearField("raw_input_contents")
    assert pb.ModelInferRequest.FromString(rest) == expected


@given(request=requests(), at=st.integers(0, 2000), byte=st.integers(0, 255), cut=st.booleans())
def test_what_is_broken_stays_broken_and_what_is_not_means_the_same(request: Any, at: int, byte: int, *, cut: bool):
    data = bytearray(request.SerializeToString() or b"\0")
    data = data[: at % len(data)] if cut else data
    if data:
        data[at % len(data)] = byte
    rest, raws = parted(bytes(data))
    expected, found = whole(bytes(data)), whole(rest)
    if expected is None:
        assert found is None
        return
    found.raw_input_contents.extend([bytes(raw) for raw in raws])
    assert list(found.raw_input_contents) == list(expected.raw_input_contents)
    assert found.SerializeToString(deterministic=True) == expected.SerializeToString(deterministic=True)


@given(raws=RAWS, name=NAMES)
def test_an_answer_is_written_as_protobuf_would(raws: list[bytes], name: str):
    message = pb.ModelInferResponse(model_name=name)
    data = written(message, [memoryview(raw) for raw in raws])
    message.raw_output_contents.extend(raws)
    assert pb.ModelInferResponse.FromString(data) == message
    assert pb.ModelStreamInferResponse.FromString(in_stream(data)) == pb.ModelStreamInferResponse(infer_response=message)


def test_long_contents_are_not_copied_and_short_messages_not_walked():
    request = pb.ModelInferRequest(model_name="a", raw_input_contents=[b"x" * (4 * SMALL_BODY), b"y" * 200])
    data = request.SerializeToString()
    came = received(data)
    assert all(isinstance(raw, memoryview) and raw.obj is data for raw in came.raws)
    assert (came.message.model_name, len(came.message.raw_input_contents), came.size) == ("a", 0, len(data))
    short = received(pb.ModelInferRequest(raw_input_contents=[b"x"]).SerializeToString())
    assert short.raws == [b"x"]


@pytest.mark.parametrize("data", [b"\x3a\xff\xff\xff\xff\x0f", b"\x3a\x05abc", b"\x3b", b"\xff" * 40, b"\xba\x80\x80\x80\x80\x80\x00\x01a"])
def test_a_message_that_is_none_is_refused_however_long_it_is(data: bytes):
    for filled in (
        data,
        b"\x3a" + bytes((0x80 | SMALL_BODY & 0x7F, SMALL_BODY >> 7 & 0x7F | 0x80, SMALL_BODY >> 14)) + bytes(SMALL_BODY) + data,
    ):
        with pytest.raises(BadRequest, match="no ModelInferRequest"):
            received(filled)


def test_a_message_of_very_many_fields_is_left_to_the_parser():
    data = b"\x3a\x00" * (FIELDS_MOST + 1)
    assert parted(data) == (data, [])
    assert len(received(data * 16).raws) == 16 * (FIELDS_MOST + 1)


class Ticket:
    """As node.call: it holds the request's tensors, and knows the sink."""

    def __init__(self, sink: object) -> None:
        self.sink = sink

    def leave(self) -> None:
        pass

    def taken(self, count: int) -> None:
        pass


@pytest.mark.parametrize(
    "ends",
    [
        lambda exchange: exchange.end(0.0),
        lambda exchange: exchange.fail(BadRequest("no")),
        lambda exchange: exchange.give_up(BadRequest("no")),
        lambda exchange: exchange.leave(),
    ],
    ids=["answered", "refused", "given up", "left"],
)
def test_what_is_over_is_gone_without_a_collector_of_cycles(ends: Any):
    """A request has tens of MiB, and the collector looks at numbers of objects alone."""
    facts: Any = SimpleNamespace(request_id="r")
    target: Any = None
    gc.disable()
    try:
        exchange = RpcExchange(facts, target, "t", 0)
        ticket = Ticket(exchange)
        exchange.hold(ticket)
        gone = weakref.ref(ticket)
        del ticket
        ends(exchange)
        del exchange
        assert gone() is None
    finally:
        gc.enable()
