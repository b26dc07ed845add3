"""Answers and refusals of ai/run as clients of Workers AI read them."""

import json

import pytest

from fornada.core import errors
from fornada.core.requests import AnswerHead
from tests.http.edge_server.conftest import RUN, Serve, Served
from tests.unit.edge.fakes import answer, refuse, stay_silent, until

A = RUN + "@test/a"


def test_the_envelope_is_exactly_that_of_workers_ai(edge: Served):
    edge.inference.behaviour = answer(b'{"x":1}')
    response = edge.run({})
    assert response.body == b'{"result":{"x":1},"success":true,"errors":[],"messages":[]}'
    assert response.headers["content-type"] == "application/json", "no charset: workerd compares"
    edge.inference.behaviour = answer(b"[null]", nonfinite=True)
    assert edge.run({}).json()["nonfinite"] is True


def test_a_body_of_the_models_own_type_has_no_envelope_and_no_power(edge: Served):
    edge.inference.behaviour = answer(b"\x89PNG", type="image/png", headers={"x-seed": "7"})
    response = edge.run({})
    assert (response.body, response.headers["content-type"], response.headers["x-seed"]) == (b"\x89PNG", "image/png", "7")
    assert response.headers["content-security-policy"] == "sandbox"
    assert response.headers["x-content-type-options"] == "nosniff"


def test_model_code_chooses_headers_and_status_within_bounds(edge: Served):
    headers = {
        "X-Good": "yes",
        "Content-Language": "pt",
        "set-cookie": "a=b",
        "content-length": "5",
        "x-request-id": "forged",
        "x-split": "a\r\nx-injected: 1",
        "x-\r\nsplit": "a",
        "access-control-allow-origin": "*",
        "x-unicode": "日",
    }
    edge.inference.behaviour = answer(b"{}", headers=headers, http_status=201)
    response = edge.run({})
    assert response.status == 201 and response.json()["success"] is True
    assert response.headers["x-good"] == "yes" and response.headers["content-language"] == "pt"
    assert not response.headers.keys() & {"set-cookie", "x-split", "x-injected", "split", "access-control-allow-origin", "x-unicode"}
    assert response.headers["x-request-id"] != "forged"
    edge.inference.behaviour = answer(b"x", type="text/html\r\nx-injected: 1")
    response = edge.run({})
    assert response.headers["content-type"] == "application/octet-stream" and "x-injected" not in response.headers
    edge.inference.behaviour = answer(b'{"why":"no"}', http_status=422, message="not like this")
    response = edge.run({})
    assert (response.status, response.code) == (422, 3030)
    assert response.json()["result"] == {"why": "no"} and "not like this" in response.message
    edge.inference.behaviour = answer(b"{}", http_status=503)
    assert edge.run({}).status == 200, "what isn't the model's to say"


REFUSALS = [
    (errors.Busy("the queue of @test/a is full", retry_after_s=2.3), 429, 3040, {"retry-after": "3"}),
    (errors.Busy("no room"), 429, 3040, {"retry-after": "1"}),
    (errors.DeadlinePassed("1 s"), 408, 3046, {"x-should-retry": "false"}),
    (errors.NeverFits("needs 9 GiB of 8 GiB"), 503, 3104, {"x-should-retry": "false"}),
    (errors.Unavailable("draining"), 503, 3100, {"retry-after": "1", "connection": "close"}),
    (errors.RunnerDied("signal 9"), 502, 3101, {}),
    (errors.LoadFailed("no module", retry_after_s=0.2), 503, 3102, {"retry-after": "1"}),
    (errors.ModelRaised("ValueError"), 500, 3103, {}),
    (errors.OutOfDeviceMemory("600 of 512"), 503, 3104, {"retry-after": "1"}),
    (errors.BadRequest("no face in the picture"), 400, 5006, {}),
    (errors.UnknownModel("gone"), 400, 5007, {}),
    (errors.ModelNotAllowed("The account is not allowed to access this model"), 403, 5018, {}),
    (errors.DiskFull("/data is full"), 507, 3107, {"retry-after": "1"}),
    (errors.InternalFault("a bug"), 500, 3199, {}),
]


@pytest.mark.parametrize(("error", "status", "code", "headers"), REFUSALS, ids=lambda value: type(value).__name__)
def test_each_refusal_has_its_status_code_and_headers(edge: Served, error, status: int, code: int, headers: dict[str, str]):
    edge.inference.behaviour = refuse(error)
    response = edge.run({})
    assert (response.status, response.code) == (status, code)
    body = response.json()
    assert body["result"] == {} and body["success"] is False and body["messages"] == []
    assert error.message in response.message
    for name in ("retry-after", "x-should-retry", "connection"):
        assert response.headers.get(name) == headers.get(name), name


def test_what_comes_from_the_model_is_marked_and_ends_with_our_id(edge: Served):
    edge.inference.behaviour = refuse(errors.ModelRaised("ValueError: no"))
    response = edge.run({})
    assert response.message == f"AiError: AiError: ValueError: no ({response.headers['cf-ai-req-id']})"


def test_request_ids_are_echoed_where_they_can_be(edge: Served):
    for sent, kept in (("abc", True), ("with space", True), ("x" * 128, True), ("x" * 129, False), ("tab\tinside", False)):
        response = edge.run({}, headers={"x-request-id": sent})
        assert (response.headers["x-request-id"] == sent) is kept, sent
        assert len(response.headers["cf-ai-req-id"]) == 36
        assert edge.inference.last.request.request_id == response.headers["x-request-id"]
        assert edge.inference.last.head.trace_id == response.headers["cf-ai-req-id"]
    strange = 'quote " and \\'
    edge.run({}, headers={"x-request-id": strange})
    assert edge.inference.last.head.request_id == strange
    refused = edge.run({}, model="@no/such", headers={"x-request-id": "mine"})
    assert refused.headers["x-request-id"] == "mine"


def test_deadline_affinity_and_account_reach_the_node(edge: Served):
    edge.run({}, headers={"x-timeout-ms": "1500", "x-session-affinity": "s1"})
    request = edge.inference.last.request
    assert request.deadline is not None and request.affinity == "s1" and request.account == "acc"
    edge.run({})
    assert edge.inference.last.request.deadline is None and edge.inference.last.request.affinity is None
    for value in ("0", "-5", "soon", "1e3", "99999999999999999999", "1,5", "NaN"):
        refused = edge.run({}, headers={"x-timeout-ms": value})
        assert (refused.status, refused.code) == (400, 5006), value


def test_model_code_sees_headers_but_no_secrets(edge: Served):
    sent = {
        "authorization": "Bearer sesame",
        "cookie": "sesame",
        "x-auth-key": "sesame",
        "x-auth-email": "sesame",
        "cf-aig-authorization": "sesame",
        "x-api-key": "sesame",
        "x-amz-security-token": "sesame",
        "proxy-authorization": "sesame",
        "x-lang": "pt",
        "user-agent": "test",
    }
    edge.run({}, headers=sent)
    assert b"sesame" not in edge.inference.last.request.head
    assert edge.inference.last.head.headers == {"x-lang": "pt", "user-agent": "test"}


@pytest.mark.parametrize(
    "spelled", ["@cf/a/b.c", "@cf%2Fa%2Fb.c", "%40cf%2Fa%2Fb%2Ec", "@cf/a/b.c/", "@cf/a/b.c:stable", "%40cf/a%2fb.c%3Astable"]
)
def test_every_spelling_of_a_name_is_the_same_model(edge: Served, spelled: str):
    edge.catalog.add("@cf/a/b.c")
    for _ in range(2):  # the second time from memory
        assert edge.run({}, model=spelled).status == 200
        assert edge.inference.last.request.model == "@cf/a/b.c"


@pytest.mark.parametrize(
    ("spelled", "code"),
    [
        ("..", 5006),
        ("a/../b", 5006),
        ("a%2F..%2Fb", 5006),
        ("%2e%2e", 5006),
        ("a%00b", 5006),
        ("a//b", 5006),
        ("%FF", 5006),
        ("x" * 300, 5006),
        ("@test/a:nonsense", 5006),
        ("@test/a:", 5006),
        ("@test/a:canary", 5007),
        ("@test/a:0123456789ab", 5007),
        ("nothing", 5007),
    ],
)
def test_a_name_that_can_t_be_is_refused(edge: Served, spelled: str, code: int):
    response = edge.run({}, model=spelled)
    assert (response.status, response.code) == (400, code), response.body


def test_a_version_of_a_model_may_be_named(edge: Served):
    digest = edge.catalog.models["@test/a"].stable.digest
    assert edge.run({}, model=f"@test/a:{digest[:12]}").status == 200
    assert edge.inference.last.request.version == digest


@pytest.mark.parametrize("account", ["", "a" * 200, "%00", "%0a"])
def test_an_account_must_be_something(edge: Served, account: str):
    assert edge.fetch("POST", f"/client/v4/accounts/{account}/ai/run/@test/a", b"{}").status in (400, 404)
    assert edge.inference.requests == []


def test_other_methods_are_405_and_say_which_there_are(edge: Served):
    for method in ("GET", "PUT", "DELETE", "PATCH", "HEAD"):
        response = edge.fetch(method, A)
        assert response.status == 405
        assert response.headers["allow"] == "GET, HEAD, OPTIONS, POST", "GET alone with Upgrade: websocket"
        if method != "HEAD":
            assert response.code == 7001
    assert edge.fetch("OPTIONS", A).headers["allow"] == "GET, HEAD, OPTIONS, POST"


def test_unknown_routes_are_refused_in_the_style_of_their_neighbours(edge: Served):
    below = edge.fetch("GET", "/client/v4/accounts/x/ai/nothing")
    assert below.status == 404
    assert [error["code"] for error in below.json()["errors"]] == [7003, 7000]
    beside = edge.fetch("GET", "/client/v4/user")
    assert (beside.status, beside.code) == (400, 7000)
    for path in ("/nothing", "/v1/chat/nothing", "/client/v4/accounts/x/ai/v1/chat/nothing", "/api/v1/nothing"):
        elsewhere = edge.fetch("POST", path, b"{}")
        assert (elsewhere.status, elsewhere.code) == (404, 7000), path
        assert elsewhere.json()["error"]["type"] == "not_found_error"


def test_a_node_that_starts_or_drains_refuses_and_shows_itself(serve: Serve):
    edge = serve()
    edge.inference.behaviour = stay_silent
    with edge.connect() as running, edge.connect() as idle:
        running.send_request("POST", A, b"{}")
        until(lambda: edge.inference.requests)
        idle.send_request("GET", "/health/ready")
        assert idle.read_response(of="GET").status == 200
        edge.tell(edge.server.drain)
        assert idle.at_end(within_s=2), "an idle connection ends"
        refused = edge.run({})
        assert (refused.status, refused.code) == (503, 3100)
        assert refused.headers["connection"] == "close" and refused.headers["retry-after"] == "1"
        assert edge.fetch("GET", "/health/live").status == 200
        ready = edge.fetch("GET", "/health/ready")
        assert (ready.status, ready.code) == (503, 3100) and ready.headers["retry-after"] == "1"
        assert edge.fetch("GET", "/api/v1/models").status == 200
        edge.tell(edge.inference.last.sink.answer, AnswerHead(), b"1")
        last = running.read_response()
        assert last.result == 1 and last.headers["connection"] == "close"
        assert running.at_end(within_s=2)
        edge.stop(5)


def test_a_node_that_isn_t_ready_yet_serves_the_moment_it_is(serve: Serve):
    from fornada.core.ports import Health

    edge = serve()
    edge.operations.healthy = Health(accepting=False, draining=False, loop_age_s=0.0)
    until(lambda: edge.run({}).status == 503)
    assert edge.fetch("GET", "/health/ready").status == 503
    edge.operations.healthy = Health(accepting=True, draining=False, loop_age_s=0.0)
    assert edge.run({}).status == 200
    edge.operations.healthy = Health(accepting=True, draining=False, loop_age_s=3.0)
    assert edge.fetch("GET", "/health/ready").status == 503


def test_stop_waits_for_what_runs_and_no_longer(serve: Serve):
    edge = serve()
    edge.inference.behaviour = stay_silent
    with edge.connect() as connection:
        connection.send_request("POST", A, b"{}")
        until(lambda: edge.inference.requests)
        edge.stop(0.3)
        assert connection.at_end(within_s=2)
    until(lambda: edge.inference.last.left, what="the work of who was cut off is cancelled")


def test_the_body_of_a_refusal_is_json_for_every_style(edge: Served):
    for path, body in ((A, b"{"), ("/v1/embeddings", b"{"), ("/api/v1/models/x", None)):
        response = edge.fetch("POST" if body else "GET", path, body)
        assert response.json()["success"] is False
        assert json.loads(response.body)["errors"][0]["code"]


TARGETS = [
    *("*", "/nope", "//nope", "/nope/", "/nope?x=%ff", "/%ff", "/a%00b", "/a%0ab", "http://127.0.0.1/nope", "/favicon.ico", "/docs/x"),
    *("/v1", "/v1/nope", "/v1/chat/completions", "/v1/models/nope", "/v2/models/nope", "/api/v1", "/api/v1/nope", "/api/v1/models/nope"),
    *("/api/v1/models/@test/a/load", "/api/v1/models/@test/a/nope", "/api/v1/models/a%ffb", "/metrics", "/health/live", "/"),
    *("/client/v4", "/client/v4/nope", "/client/v4/accounts/acc/nope", RUN, RUN + "@test/a", RUN + "nope", RUN + "a%ffb"),
]


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"])
def test_every_refusal_is_ours_whatever_is_asked_for(edge: Served, method: str):
    for target in TARGETS:
        if (method, target) == ("POST", RUN + "@test/a"):
            continue  # the one that is answered
        response = edge.fetch(method, target)
        if response.status < 400:
            continue
        assert response.headers["content-type"] == "application/json", (target, response)
        assert response.headers["cf-ai-req-id"]
        if method == "HEAD":
            assert response.body == b"" and int(response.headers["content-length"]) > 0
            continue
        said = response.json()
        assert said["success"] is False and said["errors"][0]["code"] and said["errors"][0]["message"], (target, said)
        assert ("error" in said) is (not target.startswith("/client/v4")), (target, said)


def test_the_server_as_a_whole_has_options_and_no_more(edge: Served):
    assert edge.fetch("OPTIONS", "*").status == 204
    assert edge.fetch("GET", "*").status == 404
