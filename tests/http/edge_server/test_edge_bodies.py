"""Bodies: their limits, and every form that means the same inputs."""

import base64
import json
import random
import time

import pytest

from fornada.core.requests import AnswerHead
from tests.bounds import bound, count
from tests.harness.client import Closed, request_bytes
from tests.http.edge_server.conftest import RUN, Served
from tests.unit.edge.fakes import answer, stay_silent, until

A = RUN + "@test/a"
LIMIT = 100_000
SMALL = RUN + "@test/small"
PICTURE = b"\xff\xd8\xff\xe0" + random.Random(1).randbytes(3000)
CLASSIFY = RUN + "@test/picture"


@pytest.fixture(autouse=True)
def models(edge: Served) -> None:
    edge.catalog.add("@test/small", serving={"max_body": LIMIT})
    edge.catalog.add("@test/picture", task="image-classification")
    edge.catalog.add("@test/texts", task="text-embeddings")


# ---- limits -----------------------------------------------------------------------------------------------------------------


def body_of(size: int) -> bytes:
    return b'{"a":"' + b"x" * (size - 8) + b'"}'


@pytest.mark.parametrize("chunked", [False, True])
def test_the_limit_is_the_models_and_exact(edge: Served, chunked: bool):
    with edge.connect() as connection:
        for size, status in ((LIMIT - 1, 200), (LIMIT, 200), (LIMIT + 1, 413), (LIMIT, 200), (LIMIT * 20, 413), (10, 200)):
            connection.send_request("POST", SMALL, body_of(size), chunked=chunked)
            response = connection.read_response()
            assert response.status == status, size
            if status == 413:
                assert response.code == 3006
                assert str(LIMIT) in response.message and "KiB" in response.message


def test_a_limit_below_the_first_look_holds_too(edge: Served):
    edge.catalog.add("@test/tiny", serving={"max_body": 20})
    assert edge.run({"a": "x" * 11}, model="@test/tiny").status == 200
    assert edge.run({"a": "x" * 12}, model="@test/tiny").code == 3006


def test_a_refusal_comes_before_the_body_and_the_connection_stays_usable(edge: Served):
    with edge.connect() as connection:
        connection.send(request_bytes(edge.address, "POST", SMALL, None, {"content-length": str(LIMIT * 10)}))
        response = connection.read_response()
        assert response.status == 413 and response.took_s < bound(0.5)
        assert "connection" not in response.headers
        connection.send(b"x" * (LIMIT * 10) + request_bytes(edge.address, "POST", SMALL, b'{"b":2}'))
        assert connection.read_response().result["echo"] == {"b": 2}


def test_a_body_without_end_is_cut_off(edge: Served):
    with edge.connect() as connection:
        connection.send(request_bytes(edge.address, "POST", SMALL, None, {"content-length": str(10**12)}))
        response = connection.read_response()
        assert response.status == 413 and response.headers["connection"] == "close"
        with pytest.raises(OSError):
            for _ in range(1000):
                connection.send(b"x" * 65536)
                time.sleep(0.001)


def test_only_the_last_of_many_bodies_is_thrown_away_twice(edge: Served):
    """Answers stay in order where an early refusal overtakes a running request."""
    edge.inference.behaviour = stay_silent
    with edge.connect() as connection:
        connection.send(request_bytes(edge.address, "POST", A, b"{}") + request_bytes(edge.address, "POST", SMALL, body_of(LIMIT + 5)) * 2)
        until(lambda: edge.inference.requests)
        edge.tell(edge.inference.last.sink.answer, AnswerHead(), b"1")
        assert connection.read_response().result == 1
        assert [connection.read_response().status for _ in range(2)] == [413, 413]


def test_expect_100_continue(edge: Served):
    with edge.connect() as connection:
        for _ in range(2):
            connection.send(request_bytes(edge.address, "POST", A, None, {"content-length": "2", "expect": "100-continue"}))
            assert connection.read_head().status == 100
            connection.send(b"{}")
            assert connection.read_response().status == 200
        refused = {"content-length": str(LIMIT + 1), "expect": "100-continue"}
        connection.send(request_bytes(edge.address, "POST", SMALL, None, refused))
        head = connection.read_head()
        assert head.status == 413, "nothing says that the body may come"
        assert head.headers["connection"] == "close", "nobody knows whether it will"


def test_an_early_refusal_names_what_is_wrong_with_the_model(edge: Served):
    response = edge.fetch("POST", RUN + "@cf/no/such", body_of(LIMIT))
    assert (response.status, response.code) == (400, 5007)
    assert response.message == "No such model @cf/no/such or task"


def test_half_a_body_is_a_caller_that_left(edge: Served):
    with edge.connect() as connection:
        connection.send(request_bytes(edge.address, "POST", A, b"{}", {"content-length": "500"}))
        connection.half_close()
        assert connection.rest() == b""
    assert edge.inference.requests == []


def test_a_large_answer_reaches_a_slow_reader_whole(edge: Served):
    body = json.dumps("y" * 8_000_000).encode()
    edge.inference.behaviour = answer(body)
    with edge.connect(receive_buffer=4096, timeout_s=30) as connection:
        connection.send_request("POST", A, b"{}")
        time.sleep(0.3)  # the case itself: a reader that stalls
        assert edge.fetch("GET", "/health/live").took_s < bound(0.5)
        assert len(connection.read_response().result) == 8_000_000


# ---- forms ------------------------------------------------------------------------------------------------------------------


def multipart(*fields: tuple[str, str, bytes]) -> tuple[bytes, dict[str, str]]:
    boundary = "----x"
    parts = [
        f'--{boundary}\r\ncontent-disposition: form-data; name="{name}"{extra}\r\n\r\n'.encode() + data + b"\r\n"
        for name, extra, data in fields
    ]
    return b"".join(parts) + f"--{boundary}--\r\n".encode(), {"content-type": f"multipart/form-data; boundary={boundary}"}


ENCODED = base64.b64encode(PICTURE).decode()
FORMS: dict[str, tuple[bytes, dict[str, str]]] = {
    "numbers": (json.dumps({"image": list(PICTURE)}).encode(), {"content-type": "application/json"}),
    "numbers as text/plain": (json.dumps({"image": list(PICTURE)}).encode(), {"content-type": "text/plain;charset=UTF-8"}),
    "numbers as form": (json.dumps({"image": list(PICTURE)}).encode(), {"content-type": "application/x-www-form-urlencoded"}),
    "numbers after blanks": (b" \r\n\t" + json.dumps({"image": list(PICTURE)}).encode(), {}),
    "numbers after a BOM": (b"\xef\xbb\xbf" + json.dumps({"image": list(PICTURE)}).encode(), {}),
    "base64": (json.dumps({"image": ENCODED}).encode(), {}),
    "base64 in lines": (json.dumps({"image": base64.encodebytes(PICTURE).decode()}).encode(), {}),
    "base64 for URLs": (json.dumps({"image": base64.urlsafe_b64encode(PICTURE).decode().rstrip("=")}).encode(), {}),
    "data URI": (json.dumps({"image": f"data:image/jpeg;base64,{ENCODED}"}).encode(), {}),
    "another spelling": (json.dumps({"image_b64": ENCODED}).encode(), {}),
    "nulls beside it": (json.dumps({"image": ENCODED, "image_b64": None, "lora": None}).encode(), {}),
    "raw as nothing": (PICTURE, {}),
    "raw as form": (PICTURE, {"content-type": "application/x-www-form-urlencoded"}),
    "raw as JSON": (PICTURE, {"content-type": "application/json"}),
    "raw as image": (PICTURE, {"content-type": "image/jpeg"}),
    "multipart": multipart(("image", '; filename="a.jpg"', PICTURE)),
    "multipart without a filename": multipart(("image", "", PICTURE)),
    "multipart base64": multipart(("image", "", ENCODED.encode())),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("chunked", [False, True])
def test_every_form_of_a_picture_is_the_same_request(edge: Served, form: str, chunked: bool):
    body, headers = FORMS[form]
    response = edge.fetch("POST", CLASSIFY, body, headers=headers, chunked=chunked)
    assert response.status == 200, response.body
    pieces = edge.inference.last.pieces
    assert pieces["image"] == PICTURE
    assert set(json.loads(pieces[""])) <= {"lora"} and list(pieces) == ["", "image"]
    assert edge.inference.last.head.type == "application/json"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"image":null}',
        b'{"image":5}',
        b'{"image":{}}',
        b'{"image":[256]}',
        b'{"image":[-1]}',
        b'{"image":[1.5]}',
        b'{"image":["a"]}',
        b'{"image":[[1]]}',
        b'{"image":[]}',
        b'{"image":""}',
        b'{"image":"no base64!"}',
        b'{"image":"data:image/png,abc"}',
        b'{"image":"https://example.com/a.png"}',
        b'{"image":"aaaa","image_b64":"aaaa"}',
    ],
)
def test_what_is_no_picture_is_refused_by_the_name_of_the_field(edge: Served, body: bytes):
    response = edge.fetch("POST", CLASSIFY, body, headers={"content-type": "application/json"})
    assert (response.status, response.code) == (400, 5006), response.body
    assert "image" in response.message and response.message.startswith("AiError: Bad input: Error: ")
    assert edge.inference.requests == []


def test_other_inputs_of_raw_bytes_come_from_the_query_as_the_types_they_have(edge: Served):
    edge.catalog.add("@test/speech", task="automatic-speech-recognition")
    query = "?vad_filter=true&language=pt&unknown=1&tags=a,b"
    edge.fetch("POST", RUN + "@test/speech" + query, b"RIFF....", headers={"content-type": "audio/wav"})
    assert json.loads(edge.inference.last.pieces[""]) == {"vad_filter": True, "language": "pt"}
    assert edge.inference.last.pieces["audio"] == b"RIFF...."
    bad = edge.fetch("POST", RUN + "@test/speech?vad_filter=perhaps", b"RIFF....")
    assert (bad.status, bad.code) == (400, 5006) and "vad_filter" in bad.message


def test_a_model_of_its_own_kind_gets_what_was_sent(edge: Served):
    for body, kind, seen in (
        (b'{"a": 1}', "", "application/json"),
        (b"\x00\x01", "", "application/octet-stream"),
        (b"hello", "text/plain", "text/plain"),
        (b"a=1&b=2", "application/x-www-form-urlencoded", "application/octet-stream"),
        (b"\x00", "application/x-tensor", "application/x-tensor"),
    ):
        edge.inference.behaviour = answer(b"1")
        response = edge.fetch("POST", A + "?k=v", body, headers={"content-type": kind} if kind else {})
        assert response.status == 200, response.body
        assert edge.inference.last.pieces == {"": body}
        assert edge.inference.last.head.type == seen
        assert edge.inference.last.head.query == {"k": "v"}
    edge.inference.behaviour = answer(b"1")
    assert edge.fetch("POST", A, b"").status == 200
    assert edge.inference.last.body == b"{}"
    body, headers = multipart(("prompt", "", "olá".encode()), ("picture", '; filename="p"', b"\x00\xff"))
    assert edge.fetch("POST", A, body, headers=headers).status == 200
    assert edge.inference.last.pieces == {"": '{"prompt":"olá"}'.encode(), "picture": b"\x00\xff"}


LONG = PICTURE * 700
"""Of more than the server reads at once."""


@pytest.mark.parametrize(("url", "name"), [(CLASSIFY, "image"), (A, "")])
def test_a_long_body_that_nobody_looks_into_is_passed_on_in_the_pieces_in_which_it_came(edge: Served, url: str, name: str):
    edge.inference.behaviour = answer(b"[]")
    assert edge.fetch("POST", url, LONG, headers={"content-type": "image/jpeg"}).status == 200
    asked = edge.inference.last
    assert asked.pieces[name] == LONG
    sent = [piece for piece in asked.request.body if len(piece) > 1000]
    assert len(sent) > 1 and max(map(len, sent)) < len(LONG)
    assert list(asked.head.parts) == ([("", 2), (name, len(LONG))] if name else [])


@pytest.mark.parametrize(("url", "name"), [(CLASSIFY, "image"), (A, "")])
def test_a_body_in_small_pieces_is_put_together_first(edge: Served, url: str, name: str):
    edge.inference.behaviour = answer(b"[]")
    with edge.connect() as connection:
        connection.send(request_bytes(edge.address, "POST", url, PICTURE, {"content-type": "image/jpeg"}, chunked=True, chunk=10))
        assert connection.read_response().status == 200
    assert edge.inference.last.pieces[name] == PICTURE
    assert sum(len(piece) > 2 for piece in edge.inference.last.request.body) == 1


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "image/jpeg", ""])
def test_long_json_is_read_whatever_it_is_called(edge: Served, kind: str):
    edge.inference.behaviour = answer(b"[]")
    text = json.dumps({"text": "x" * len(LONG)}).encode()
    assert edge.fetch("POST", A, b" " + text, headers={"content-type": kind} if kind else {}).status == 200
    assert json.loads(edge.inference.last.body) == json.loads(text) and edge.inference.last.head.type == "application/json"
    number = edge.fetch("POST", CLASSIFY, text[1:], headers={"content-type": "application/json"})
    assert (number.status, number.code) == (400, 5006)


@pytest.mark.parametrize("body", [b"5", b'"text"', b"null", b"true", b"[1,2]", b"[]", b"-1.5"])
def test_json_that_is_no_object_is_refused_where_the_schema_says_object(edge: Served, body: bytes):
    for kind in ("", "application/json", "application/x-www-form-urlencoded"):
        response = edge.fetch("POST", A, body, headers={"content-type": kind} if kind else {})
        assert (response.status, response.code) == (400, 5006), (body, kind, response.body)


def test_the_model_may_be_named_in_the_body(edge: Served):
    target = RUN.rstrip("/")
    response = edge.fetch("POST", target, payload={"model": "@test/a", "input": {"x": 1}, "options": {"rejectIfBusy": True}})
    assert response.result["echo"] == {"x": 1}
    assert edge.inference.last.request.reject_if_busy
    assert edge.fetch("POST", target + "/", payload={"model": "@test/a"}).result["echo"] == {}
    for payload, code in (({}, 5006), ({"model": 5}, 5006), ({"model": "@no/such"}, 5007), ({"model": "a/../b"}, 5006), ([], 5006)):
        refused = edge.fetch("POST", target, payload=payload)
        assert (refused.status, refused.code) == (400, code), payload
    assert edge.fetch("POST", target, payload={"model": "@test/texts", "input": {"text": 5}}).code == 5006


def test_options_are_peeled_off(edge: Served):
    edge.run({"a": 1, "options": {"rejectIfBusy": True, "tags": ["x:y"]}})
    assert json.loads(edge.inference.last.body) == {"a": 1}
    assert edge.inference.last.request.reject_if_busy
    edge.run({"a": 1, "options": None})
    assert json.loads(edge.inference.last.body) == {"a": 1}
    wrong: list[object] = [{"queueRequest": True}, [], "x", {"rejectIfBusy": "yes"}, {"tags": ["a"] * 6}, {"tags": ["a b"]}]
    for options in wrong:
        refused = edge.run({"options": options})
        assert (refused.status, refused.code) == (400, 5006), options


def test_the_query_is_read_and_what_is_unknown_in_it_ignored(edge: Served):
    assert edge.fetch("POST", A + "?", b"{}").status == 200
    assert edge.fetch("POST", A + "?x=%F0%9F%8D%9E&y&z=1&z=2&tags=a:b,c", b"{}").status == 200
    assert edge.inference.last.head.query == {"x": "🍞", "y": "", "z": "2"}
    for query in ("tags=a,b,c,d,e,f", "tags=" + "x" * 51, "tags=a%20b", "queueRequest=true", "x=%FF"):
        refused = edge.fetch("POST", f"{A}?{query}", b"{}")
        assert (refused.status, refused.code) == (400, 5006), query


def test_null_counts_as_absent_in_the_schemas_of_tasks(edge: Served):
    edge.run({"text": ["a"], "pooling": None, "truncate_inputs": None}, model="@test/texts")
    assert json.loads(edge.inference.last.body) == {"text": ["a"]}
    assert edge.run({"text": None}, model="@test/texts").code == 5006


def test_a_models_own_schema_takes_the_place_of_its_tasks(edge: Served, tmp_path):
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"], "additionalProperties": False}
    (tmp_path / "input.json").write_text(json.dumps(schema))
    edge.catalog.add("@test/own", task="text-embeddings", folder=str(tmp_path), schema={"input": "input.json"})
    assert edge.run({"n": 1}, model="@test/own").status == 200
    for payload, word in (({}, "required properties at '/' are 'n'"), ({"n": "1"}, "'/n', 'string' not in 'integer'"), ({"n": 0}, "/n")):
        refused = edge.run(payload, model="@test/own")
        assert (refused.status, refused.code) == (400, 5006) and word in refused.message, refused.message
    assert "'m'" in edge.run({"n": 1, "m": 2}, model="@test/own").message
    (tmp_path / "broken.json").write_text('{"$ref": "http://169.254.169.254/latest"}')
    edge.catalog.add("@test/fetches", folder=str(tmp_path), schema={"input": "broken.json"})
    refused = edge.run({}, model="@test/fetches")
    assert (refused.status, refused.code) == (400, 5010)


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":\xff}',
        b'{"a":"\xff"}',
        b'{"a":"\\ud800 lone"}',
        b'{"a":1,"a":2}',
        b'{"a":01}',
        b'{"a":"\x01"}',
        b'{"a":1}}',
        b'{"a":1} {"b":2}',
        b'{"a"',
        b"{",
        b"[",
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"{'a':1}",
        b'{"a":1,}',
    ],
    ids=lambda body: repr(body[:30]),
)
@pytest.mark.parametrize("model", ["@test/a", "@test/texts", "@test/picture"])
def test_broken_json_is_refused_with_a_reason(edge: Served, body: bytes, model: str):
    response = edge.fetch("POST", RUN + model, body, headers={"content-type": "application/json"})
    assert (response.status, response.code) == (400, 5006)
    assert "Bad input" in response.message
    assert edge.inference.requests == []


def mutated(chance: random.Random, body: bytes) -> bytes:
    broken = bytearray(body)
    for _ in range(chance.randint(1, 5)):
        at = chance.randrange(len(broken) + 1)
        match chance.randrange(6):
            case 0:
                broken[at : at + 1] = chance.randbytes(1)
            case 1:
                del broken[at : at + chance.randint(1, 12)]
            case 2:
                broken[at:at] = chance.choice([b"{", b"[", b"}", b"]", b'"', b",", b":", b"\\", b"\x00", b"null", b"1e999", b"-", b"NaN"])
            case 3:
                broken[at:at] = b"9" * chance.randint(1, 5000)
            case 4:
                broken[at:at] = b'"text":1,'
            case 5:
                broken = bytearray(broken[:at])
        if not broken:
            break
    return bytes(broken)


def test_mutated_bodies_are_refused_in_json_or_served(edge: Served):
    chance = random.Random(33)
    good = {
        "@test/texts": json.dumps({"text": ["a", "b"], "pooling": "cls", "options": {"rejectIfBusy": False}}).encode(),
        "@test/picture": json.dumps({"image": [1, 2, 3, 255]}).encode(),
        "@test/a": json.dumps({"a": {"b": [1, 2.5, None, True, "x"]}, "stream": False}).encode(),
    }
    edge.inference.behaviour = answer(b"{}")
    served, bodies = 0, count(500, long=20_000)
    with edge.connect() as connection:
        for _ in range(bodies):
            model = chance.choice(list(good))
            body = mutated(chance, good[model])
            connection.send_request("POST", RUN + model, body, {"content-type": "application/json"})
            response = connection.read_response()
            assert response.status in (200, 400), (model, body, response.body)
            assert response.took_s < bound(1)
            response.json()
            served += response.status == 200
    assert 0 < served < bodies * 4 // 5, "there were some of both"


def test_mutated_requests_never_confuse_the_connection(edge: Served):
    chance = random.Random(36)
    good = request_bytes(edge.address, "POST", A, b'{"a":1}', {"x-request-id": "m", "content-type": "application/json"})
    edge.inference.behaviour = answer(b"{}")  # an echo of a raw body would be no JSON, and that the model's fault
    for _ in range(count(300, long=10_000)):
        request = mutated(chance, good)
        with edge.connect(timeout_s=5) as connection:
            connection.send(request)
            connection.half_close()
            try:
                head = connection.read_head()
            except (Closed, ConnectionError):
                continue
            assert 200 <= head.status < 500, request
    assert edge.run({}).status == 200
