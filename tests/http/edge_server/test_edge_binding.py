"""The binding's door (WORKERS_AI.md, 14): how a request of the Workers runtime is unwrapped, what it may reach, and what it is answered."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from fornada.core.errors import Busy
from fornada.core.jobs import JobId, Outcome, Status
from fornada.core.requests import AnswerHead
from fornada.core.settings import GatewaysSettings
from tests.harness.client import Response
from tests.http.edge_server.conftest import Locked, Served
from tests.unit.edge.fakes import answer, items, refuse

RUN = "https://workers-binding.ai/run?version=3"
KEYS = {"mf-binding": "AI"}


def wrapped(url: str = RUN, **inner: str) -> dict[str, str]:
    """Headers of a request through the runtime's proxy."""
    given = {
        "content-type": "application/json",
        "cf-consn-model-id": "@test/a",
        **{name.replace("_", "-"): value for name, value in inner.items()},
    }
    return {"MF-Binding": "AI", "MF-URL": url, **{f"MF-Header-{name}": value for name, value in given.items()}}


def ask(edge: Served, inputs: Any, path: str = "/", *, url: str = RUN, options: Any = None, **inner: str) -> Response:
    return edge.fetch("POST", path, payload={"inputs": inputs, "options": options or {}}, headers=wrapped(url, **inner))


@pytest.fixture
def locked() -> Iterator[Locked]:
    edge = Locked()
    edge.start()
    yield edge
    edge.close()


@pytest.mark.parametrize("path", ["/", "/anything/at/all", "/binding/-/", "/binding/any-key-in-open-mode", "/?x=1"])
def test_a_result_comes_without_an_envelope_and_as_exactly_json(edge: Served, path: str):
    response = ask(edge, {"text": "hello"}, path)
    assert response.status == 200, response.body
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {"echo": {"text": "hello"}, "files": {}}
    assert response.headers["cf-ai-req-id"] == edge.inference.last.request.trace_id
    assert edge.inference.last.request.model == "@test/a"


def test_it_is_spoken_directly_too(edge: Served):
    response = edge.fetch("POST", "/binding/-/run?version=3", payload={"inputs": {"a": 1}}, headers={"cf-consn-model-id": "@test/a"})
    assert response.json() == {"echo": {"a": 1}, "files": {}}


@pytest.mark.parametrize("name", ["@test/a", "prefix:@test/a", "@test%2Fa"])
def test_a_model_is_named_with_and_without_a_prefix(edge: Served, name: str):
    response = ask(edge, {}, cf_consn_model_id=name)
    assert (response.status == 200) == ("%" not in name), "a header isn't percent-encoded"


def test_headers_of_the_worker_reach_the_model_and_those_of_the_connection_stay_ours(edge: Served):
    response = ask(
        edge, {}, x_mine="yes", host="evil.example", origin="http://evil.example", authorization="Bearer other", content_length="3"
    )
    assert response.status == 200, response.body
    shown = edge.inference.last.head.headers
    assert shown["x-mine"] == "yes" and shown["content-type"] == "application/json"
    assert not any(name.startswith("mf-") or name in ("host", "authorization") for name in shown)


@pytest.mark.parametrize("header", ["Host", "Origin"])
def test_in_open_mode_a_foreign_page_gets_nothing(edge: Served, header: str):
    foreign = {"Host": "evil.example", "Origin": "http://evil.example"}
    response = edge.fetch("POST", "/", payload={"inputs": {}}, headers={**wrapped(), header: foreign[header]})
    assert (response.status, response.json()["internalCode"]) == (403, 3105)
    assert edge.inference.requests == []


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/run?version=3",
        "https://workers-binding.ai.evil.example/run",
        "https://user@workers-binding.ai/run",
        "/run",
        "https://workers-binding.ai/run\u00e9",
    ],
)
def test_another_address_is_refused(edge: Served, url: str):
    assert ask(edge, {}, url=url).status == 400
    assert edge.inference.requests == []


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/models",
        "/metrics",
        "/",
        "/../api/v1/models",
        "//api/v1/models",
        "/%2e%2e/metrics",
        "/binding/-/run",
        "/health/live",
        "/-/run",
        "?x",
    ],
)
def test_it_reaches_the_binding_s_routes_alone(locked: Locked, path: str):
    for method in ("GET", "POST"):
        headers = {**wrapped(f"https://workers-binding.ai{path}"), **locked.show("admin")}
        response = locked.fetch(method, "/api/v1/models", b"{}" if method == "POST" else None, headers=headers)
        assert (response.status, response.json()["internalCode"]) == (400, 7000), response.body


def test_options_are_the_platforms_and_never_the_models(edge: Served):
    edge.inference.behaviour = refuse(Busy("the queue is full", retry_after_s=2.0))
    response = ask(edge, {"a": 1}, options={"rejectIfBusy": True, "gateway": None, "returnRawResponse": False, "tags": ["a:b"]})
    assert edge.inference.last.request.reject_if_busy
    assert json.loads(edge.inference.last.body) == {"a": 1}
    assert response.status == 429 and response.headers["retry-after"] == "2"
    told = response.json()
    assert (told["internalCode"], told["name"], told["httpCode"]) == (3040, "AiError", 429)
    assert told["description"].startswith("Capacity temporarily exceeded") and told["message"].startswith("AiError: Capacity")
    assert told["requestId"] == response.headers["cf-ai-req-id"]
    assert told["errors"] == [{"code": 3040, "message": told["description"]}]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"inputs": {}, "options": []}', 5006),
        (b'{"inputs": {}, "options": {"rejectIfBusy": 1}}', 5006),
        (b'{"inputs": {}, "options": {"tags": ["?"]}}', 5006),
        (b"[]", 5006),
        (b"{", 5006),
    ],
)
def test_what_cannot_be_is_refused_and_loads_nothing(edge: Served, body: bytes, code: int):
    response = edge.fetch("POST", "/", body, headers=wrapped())
    assert (response.status, response.json()["internalCode"]) == (400, code), response.body
    assert edge.inference.requests == []


def test_no_model_and_an_unknown_one(edge: Served):
    assert ask(edge, {}, cf_consn_model_id="").json()["internalCode"] == 5006
    told = ask(edge, {}, cf_consn_model_id="@test/nothing").json()
    assert told["internalCode"] == 5007 and told["description"].startswith("No such model @test/nothing or task")


def test_a_stream_is_events_and_a_picture_its_bytes(edge: Served):
    edge.inference.behaviour = items(b'{"response":"a"}', b'{"response":"b"}')
    response = ask(edge, {"stream": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.body == b'data: {"response":"a"}\n\ndata: {"response":"b"}\n\ndata: [DONE]\n\n'
    assert ask(edge, {}).json() == {"items": [{"response": "a"}, {"response": "b"}]}
    edge.inference.behaviour = answer(b"\x89PNG", type="image/png")
    response = ask(edge, {})
    assert (response.headers["content-type"], response.body) == ("image/png", b"\x89PNG")


def test_what_a_model_refuses_itself_keeps_its_status(edge: Served):
    edge.inference.behaviour = answer(b'{"x":1}', http_status=422, message="no such voice")
    response = ask(edge, {})
    told = response.json()
    assert (response.status, told["internalCode"], told["httpCode"]) == (422, 3030, 422)
    assert told["description"] == "no such voice"


def test_numbers_that_json_cannot_hold_are_told_beside_the_result(edge: Served):
    edge.inference.behaviour = lambda submitted: submitted.sink.answer(AnswerHead(nonfinite=True), b'{"x":null}')
    response = ask(edge, {})
    assert response.json() == {"x": None} and response.headers["x-fornada-nonfinite"] == "true"


def test_a_stream_of_bytes_is_the_one_binary_input_and_the_others_stand_in_the_query(edge: Served):
    edge.catalog.add("@test/hear", task="automatic-speech-recognition")
    others = quote(msgspec.json.encode({"language": "en", "vad_filter": True, "initial_prompt": None}))
    url = f"https://workers-binding.ai/run?version=3&userInputs={others}&returnRawResponse=false"
    headers = wrapped(url, cf_consn_model_id="@test/hear", content_type="audio/mpeg")
    response = edge.fetch("POST", "/", b"\xff\xfbsound" * 50, headers=headers, chunked=True)
    assert response.status == 200, response.body
    assert response.json()["files"] == {"audio": 350}
    assert response.json()["echo"] == {"language": "en", "vad_filter": True}


@pytest.mark.parametrize("model", ["@test/hear", "@test/a"])
@pytest.mark.parametrize(("option", "rejects"), [("rejectIfBusy=true", True), ("rejectIfBusy=false", False), ("queueRequest=false", False)])
def test_a_stream_that_is_not_to_wait_says_so_in_the_query(edge: Served, model: str, option: str, *, rejects: bool):
    edge.catalog.add("@test/hear", task="automatic-speech-recognition")
    headers = wrapped(f"{RUN}&userInputs=%7B%7D&{option}", cf_consn_model_id=model, content_type="audio/mpeg")
    body = b"\xff\xfbsound" if model == "@test/hear" else b'{"a":1}'
    assert edge.fetch("POST", "/", body, headers=headers, chunked=True).status == 200
    assert edge.inference.last.request.reject_if_busy is rejects


def test_a_form_is_its_fields(edge: Served):
    form = b'--x\r\nContent-Disposition: form-data; name="prompt"\r\n\r\nhello\r\n--x--\r\n'
    headers = wrapped(f"{RUN}&userInputs=%7B%7D", content_type="multipart/form-data; boundary=x")
    assert edge.fetch("POST", "/", form, headers=headers).json()["echo"] == {"prompt": "hello"}


def test_a_list_of_requests_becomes_a_job_and_is_asked_after(edge: Served):
    queued = ask(edge, {"requests": [{"a": 1}, {"a": 2}]}, options={"queueRequest": True}).json()
    assert queued["status"] == "queued" and queued["model"] == "@test/a"
    assert ask(edge, {"request_id": queued["request_id"]}).json()["request_id"] == queued["request_id"]
    assert edge.inference.requests == []


def test_the_results_of_a_large_job_have_no_envelope_either(edge: Served):
    count = 300
    queued = ask(edge, {"requests": [{"a": number} for number in range(count)]}, options={"queueRequest": True}).json()
    id = JobId(queued["request_id"])
    outcome = Outcome(Status.COMPLETED, 200, b'{"result":{"text":"%b"},"success":true}' % (b"x" * 4000), "r")
    edge.jobs.outcomes[id] = dict.fromkeys(range(count), outcome)
    edge.jobs.become(id, Status.COMPLETED)
    response = ask(edge, {"request_id": queued["request_id"]})
    found = response.json()
    assert [each["id"] for each in found["responses"]] == list(range(count)) and len(response.body) > 1_000_000
    assert set(found) == {"responses", "usage"}


def test_the_catalogue_and_the_wish_for_a_websocket_of_another_protocol(edge: Served):
    found = edge.fetch("GET", "/", headers=wrapped("https://workers-binding.ai/ai-api/models/search?search=test")).json()["result"]
    assert "@test/a" in [each["name"] for each in found]
    told = edge.fetch("GET", "/", headers=wrapped("https://workers-binding.ai/ai-api/models/search?page=x"))
    assert told.status == 400 and told.json()["errors"][0]["message"]
    upgrade = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        "Sec-WebSocket-Version": "13",
    }
    for path in ("/?MF-Binding=AI", "/binding/-/?MF-Binding=AI"):
        assert edge.fetch("GET", path, headers=upgrade).status in (200, 400, 404), "the runtime then asks in the old way"


def test_a_body_has_its_model_s_bound(edge: Served):
    edge.catalog.add("@test/small", serving={"max_body": "20KiB"})
    for size, status in ((10_000, 200), (30_000, 413), (300_000, 413)):
        assert ask(edge, {"text": "x" * size}, cf_consn_model_id="@test/small").status == status, size


def test_a_key_in_the_path_counts_and_is_never_a_path_any_more(locked: Locked):
    key = locked.texts["user"]
    assert ask(locked, {"a": 1}, f"/binding/{key}/").status == 200
    assert ask(locked, {"a": 1}, f"/binding/{key}").status == 200
    assert locked.inference.last.request.account == "mine"
    assert ask(locked, {}, f"/binding/{key}/", cf_consn_model_id="@test/mine").status == 200
    assert key not in str(locked.inference.last.head)
    direct = locked.fetch("POST", f"/binding/{key}/run", payload={"inputs": {}}, headers={"cf-consn-model-id": "@test/a"})
    assert direct.status == 200
    with locked.connect() as connection:
        for caller, status in (("user", 200), ("wrong key", 401), ("other deployer", 403), ("user", 200)):
            headers = wrapped(cf_consn_model_id="@test/mine")
            connection.send_request("POST", f"/binding/{locked.texts[caller]}/", b'{"inputs":{}}', headers)
            response = connection.read_response()
            assert response.status == status, (caller, response.body)
            assert locked.texts[caller].encode() not in response.body


KEY_HEADERS = ("authorization", "cf_aig_authorization", "x_api_key", "x_auth_key", "x_auth_user_service_key")


@pytest.mark.parametrize("path", ["/", "/binding/", "/binding/-/", "/binding/fnd_0/", "/binding//run"])
def test_without_a_key_nothing_is_answered(locked: Locked, path: str):
    response = ask(locked, {}, path)
    assert (response.status, response.json()["internalCode"]) == (401, 10000)
    for name in KEY_HEADERS:
        for prefix in ("", "Bearer "):
            assert ask(locked, {}, path, **{name: prefix + locked.texts["admin"]}).status == 401, "a Worker's own header is no key"
    assert locked.inference.requests == []


@pytest.mark.parametrize("name", KEY_HEADERS)
def test_no_header_speaks_against_the_path_s_key(locked: Locked, name: str):
    path, other = f"/binding/{locked.texts['user']}/", f"Bearer {locked.texts['other deployer']}"
    assert ask(locked, {}, path, cf_consn_model_id="@test/mine", **{name: other}).status == 200, "a Worker passes on what its callers send"
    headers = {**wrapped(cf_consn_model_id="@test/mine"), name.replace("_", "-"): other}
    assert locked.fetch("POST", path, payload={"inputs": {}}, headers=headers).status == 200


def test_no_answer_quotes_the_path_s_key(locked: Locked):
    key = locked.texts["user"]
    for method, path in (
        ("GET", f"/binding/{key}/"),
        ("GET", f"/binding/{key}/nothing/here"),
        ("PUT", f"/binding/{key}/run"),
        ("POST", f"/binding/{key}/ai-api/models/search"),
        ("GET", f"http://localhost/binding/{key}/nothing"),
        ("GET", f"/binding/{key}?MF-Binding=AI"),
    ):
        response = locked.fetch(method, path, b"{" if method == "POST" else None)
        assert 400 <= response.status < 500, path
        assert key.encode() not in response.body and key not in str(response.headers)


# ---- through gateways


@pytest.fixture
def gated() -> Iterator[Served]:
    served = Served(gateways=GatewaysSettings())
    served.start()
    yield served
    served.close()


GATED = "https://workers-binding.ai/ai-gateway/run?version=3"


def test_a_gateway_keeps_answers_as_the_binding_has_them(gated: Served):
    options = {"gateway": {"id": "default", "cacheTtl": 60}}
    first, second = (ask(gated, {"a": 1}, url=GATED, options={**options, "tags": ["x"]}) for _ in range(2))
    assert first.json() == second.json() == {"echo": {"a": 1}, "files": {}}
    assert [each.headers["cf-aig-cache-status"] for each in (first, second)] == ["MISS", "HIT"]
    assert len(gated.inference.requests) == 1
    path = f"https://workers-binding.ai/ai-gateway/gateways/default/logs/{second.headers['cf-aig-log-id']}"
    assert gated.fetch("GET", "/", headers=wrapped(path)).json()["result"]["cached"] is True
    url = gated.fetch("GET", "/", headers=wrapped("https://workers-binding.ai/ai-gateway/gateways/default/url/universal")).json()
    assert url["result"]["url"].startswith("http://")


def test_a_gateway_tells_inputs_in_the_query_apart(gated: Served):
    options = {"gateway": {"id": "default", "cacheTtl": 60}}
    told = []
    for text in ("one", "two", "one"):
        url = f"{GATED}&userInputs={quote(json.dumps({'text': text}))}"
        response = ask(gated, {}, url=url, options=options)
        assert response.status == 200, response.body
        told.append(response.headers["cf-aig-cache-status"])
    assert told == ["MISS", "MISS", "HIT"]


def test_a_gateway_that_is_not_there_and_one_without_a_name(gated: Served):
    missing = ask(gated, {}, url=GATED, options={"gateway": {"id": "nothing"}})
    assert missing.status == 404 and missing.json()["errors"][0]["message"]
    odd: tuple[dict[str, Any], ...] = (
        {},
        {"gateway": 1},
        {"gateway": {}},
        {"gateway": {"id": "a/b"}},
        {"gateway": {"id": "default", "cacheTtl": "x"}},
    )
    for options in odd:
        assert ask(gated, {}, url=GATED, options=options).status == 400, options
    assert gated.inference.requests == []


def test_a_refusal_behind_a_gateway_reads_as_the_binding_s(gated: Served):
    gated.inference.behaviour = refuse(Busy("full"))
    told = ask(gated, {}, url=GATED, options={"gateway": {"id": "default", "retries": {"maxAttempts": 1}}}).json()
    assert (told["internalCode"], told["name"]) == (3040, "AiError")


def test_entries_are_tried_in_their_order(gated: Served):
    entries = [{"provider": "workers-ai", "endpoint": name, "query": {"a": 1}} for name in ("@test/nothing", "@test/a")]
    response = gated.fetch("POST", "/", payload=entries, headers=wrapped("https://workers-binding.ai/ai-gateway/universal/run/default"))
    assert (response.status, response.headers["cf-aig-step"]) == (200, "1"), response.body
    assert response.json()["result"]["echo"] == {"a": 1}


# ---- Markdown

MARKDOWN = "https://workers-binding.ai/to-everything/markdown/transformer"


def test_files_come_in_base64(edge: Served):
    edge.catalog.add("@fornada/to-markdown")
    edge.inference.behaviour = answer(b'{"data":"# Hello","images":[]}')
    files = [{"name": "a.html", "mimeType": "text/html", "data": "PGgxPkhlbGxvPC9oMT4="}]
    response = edge.fetch("POST", "/", payload={"files": files, "options": None}, headers=wrapped(MARKDOWN))
    (result,) = response.json()["result"]
    assert (result["name"], result["format"], result["data"]) == ("a.html", "markdown", "# Hello")
    assert b"PGgxPkhlbGxvPC9oMT4=" in edge.inference.last.body or "file" in edge.inference.last.pieces


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"[]",
        b"{",
        b'{"files":[]}',
        b'{"files":[{"name":"a"}]}',
        b'{"files":[{"name":"a","data":"?"}]}',
        b'{"files":[{"name":"a","data":"\xc3\xa9"}]}',
    ],
)
def test_files_that_are_none_are_refused(edge: Served, body: bytes):
    response = edge.fetch("POST", "/", body, headers=wrapped(MARKDOWN))
    assert (response.status, response.json()["internalCode"]) == (400, 5006)
    assert edge.inference.requests == []
