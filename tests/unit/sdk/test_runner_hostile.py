"""What is no message costs the control plane that sent it its connection, and the runner nothing."""

import os
import random

import pytest

from fornada_sdk.wire.framing import HEADER, MORE, frame
from fornada_sdk.wire.messages import Kind
from tests.bounds import count
from tests.unit.sdk.driver import Start

ECHO = "def handle_request(r, c): return r.body.json"

GARBAGE = [
    pytest.param([b"\0"], id="a byte"),
    pytest.param([b"\xff" * 500], id="a length beyond the packet"),
    pytest.param([HEADER.pack(10, Kind.INVOKE, 0, 0, 1) + b"abc"], id="a payload cut off"),
    pytest.param([frame(200, 1, b"")], id="an unknown kind"),
    pytest.param([frame(Kind.ANSWER, 1, b"")], id="a message of the other side"),
    pytest.param([frame(Kind.INVOKE, 1, b"abc")], id="an INVOKE without a head"),
    pytest.param([frame(Kind.INVOKE, 1, b"\xff\xff\xff\xff\0\0\0\0{}")], id="a head beyond the payload"),
    pytest.param([frame(Kind.PART, 1, b"x", part=1)], id="a part of nothing"),
    pytest.param([frame(Kind.INVOKE, 1, b"x", flags=MORE), frame(Kind.PART, 1, b"x", part=2)], id="a part left out"),
    pytest.param([frame(Kind.INVOKE, 1, b"x", flags=MORE), frame(Kind.INVOKE, 1, b"x", flags=MORE)], id="a body begun twice"),
    pytest.param([frame(Kind.ACK, 0, b"1234567")], id="an ACK of 7 bytes"),
    pytest.param([frame(Kind.CREDIT, 1, b"1")], id="a CREDIT of 1 byte"),
    pytest.param([frame(Kind.STOP, 0, b"{")], id="a STOP that is no JSON"),
    pytest.param([frame(Kind.STOP, 0, b"[]")], id="a STOP that is no object"),
    pytest.param([frame(Kind.BOOKED, 0, b"\xff")], id="a BOOKED that is no text"),
]


@pytest.mark.parametrize("packets", GARBAGE)
def test_garbage_drops_the_connection_and_nothing_else(start: Start, packets: list[bytes]):
    runner = start(ECHO)
    good = runner.attach()
    good.ready()
    bad = runner.attach()
    bad.ready()
    for packet in packets:
        bad.sock.send(packet)
    bad.wait_closed()
    runner.wait_line(lambda line: "dropped the control plane of epoch 2" in line)
    assert good.call({"still": "here"}) == {"still": "here"}


def test_a_body_beyond_the_limit_drops_the_connection(start: Start):
    runner = start(ECHO, serving={"max_body": 1000})
    plane = runner.attach()
    plane.ready()
    id = plane.next_id()
    try:
        plane.send(plane.invocation(id, raw=b"x" * 3_000_000))
    except OSError:
        pass
    plane.wait_closed()
    plane = runner.attach()
    plane.ready()
    assert plane.call(1) == 1


def test_the_same_id_twice_drops_the_connection(start: Start):
    runner = start("import time\ndef handle_request(r, c): time.sleep(0.2)")
    plane = runner.attach()
    plane.ready()
    plane.send([*plane.invocation(5, 1), *plane.invocation(5, 1)])
    plane.wait_closed()


@pytest.mark.parametrize("head", [b"", b"not json", b"[]", b"\xff", b'{"parts": 5}', b'{"parts": [["", 1000000]]}', b'{"headers": 1}'])
def test_a_head_that_can_not_be_read_fails_one_request(start: Start, head: bytes):
    runner = start("def handle_request(r, c): return [r.body.json, dict(r.headers), c.request_id]")
    plane = runner.attach()
    plane.ready()
    id = plane.next_id()
    body = b'{"a": 1}'
    plane.send([frame(Kind.INVOKE, id, len(head).to_bytes(4, "little") + b"\0\0\xf0\x41" + head + body)])
    plane.end_of(id)
    assert plane.call(2)[0] == 2


def test_random_packets_never_end_the_runner(start: Start):
    runner = start(ECHO)
    runner.attach().ready()
    random_ = random.Random(8250)
    for _ in range(count(60, long=2000)):
        plane = runner.attach()
        try:
            for _ in range(5):
                packet = random_.randbytes(random_.choice([1, 19, 20, 21, 100, 65536]))
                if random_.random() < 0.7:
                    payload = packet[:200]
                    kind = random_.choice([16, 17, 18, 19, 21, 32, 0, 255, 1])
                    packet = frame(
                        kind, random_.choice([0, 1, 2**64 - 1]), payload, part=random_.choice([0, 1, 2]), flags=random_.choice([0, 1])
                    )
                plane.sock.send(packet)
        except OSError:
            pass
        plane.close()
    plane = runner.attach()
    plane.ready()
    assert plane.call("alive") == "alive"
    assert runner.alive
    assert len(os.listdir(f"/proc/{runner.pid}/fd")) < 30, "nothing leaks"


def test_garbage_from_the_keeper_is_the_end(start: Start):
    runner = start(ECHO)
    runner.attach().ready()
    os.write(runner.keeper.fileno(), b"garbage")
    assert runner.exit_code() == 70


QUOTES = """
import fornada_sdk

def handle_request(request, context):
    text = request.body.json["text"]
    how = request.body.json["how"]
    if how == "refuse":
        raise fornada_sdk.BadRequest(f"no label is called {text}")
    if how == "raise":
        raise ValueError(f"no file is called {text}")
    if how == "count":
        context.usage[text] = 1
        context.usage["all"] = 10**5000
    if how == "stream":
        return pieces(text)
    return {"text": text}

def pieces(text):
    yield text
    raise ValueError(f"no file is called {text}")
"""


@pytest.mark.parametrize(
    ("how", "status"), [("refuse", "bad_request"), ("raise", "raised"), ("count", "ok"), ("stream", "raised"), ("answer", "ok")]
)
def test_half_a_character_that_model_code_quotes_does_not_end_the_runner(start: Start, how: str, status: str):
    runner = start(QUOTES)
    plane = runner.attach()
    plane.ready()
    end = plane.end_of(plane.invoke({"how": how, "text": "\ud800"}))
    head = end.json if end.kind is Kind.END else end.head
    assert head.get("status", "ok") == status
    assert "\ufffd" in str(head) or status == "ok"
    assert plane.call({"how": "answer", "text": "a"}) == {"text": "a"}


def test_a_load_that_fails_over_half_a_character_says_so(start: Start):
    failed = start("raise FileNotFoundError('\\udcff.bin')").attach().wait(lambda m: b"failed" in m.payload or m.kind is Kind.FAILED)
    assert failed.json["reason"] == "FileNotFoundError: \ufffd.bin"


COUNTS = """
class Odd:
    def __str__(self):
        raise RuntimeError("no name")

def handle_request(request, context):
    kind = request.body.json
    if kind == "long":
        context.usage["note"] = "y" * 100_000
    if kind == "many":
        context.usage.update((f"count {number}", number) for number in range(100_000))
    if kind == "odd":
        context.usage[Odd()] = 1
    if kind == "wide":
        import fornada_sdk
        return fornada_sdk.Response({}, headers={f"x-{number}": "y" * 1000 for number in range(100)})
    context.usage["input_tokens"] = 3
    return kind
"""


@pytest.mark.parametrize("kind", ["long", "many", "odd", "wide"])
def test_a_head_that_would_be_too_large_does_not_end_the_runner(start: Start, kind: str):
    runner = start(COUNTS)
    plane = runner.attach()
    plane.ready()
    end = plane.end_of(plane.invoke(kind))
    assert end.head.get("status", "ok") == ("raised" if kind == "wide" else "ok")
    plain = plane.end_of(plane.invoke("plain"))
    assert plain.head["usage"] == {"input_tokens": 3}
