"""The node's own API."""

import json
import re
import time

import jsonschema_rs
import pytest

from fornada.core.ports import LogLine
from tests.bounds import bound
from tests.harness.client import Closed
from tests.http.edge_server.conftest import Serve, Served
from tests.unit.edge.fakes import until

MODELS = "/api/v1/models"


def test_models_are_listed_and_shown(edge: Served):
    listed = edge.fetch("GET", MODELS).json()
    assert [model["name"] for model in listed["models"]] == ["@test/a"]
    for spelled in ("@test/a", "%40test%2Fa", "@test/a/", "@test/a:stable"):
        model = edge.fetch("GET", f"{MODELS}/{spelled}").json()
        assert model["name"] == "@test/a" and model["state"] == "stopped" and model["pinned"] is False
    unknown = edge.fetch("GET", f"{MODELS}/@no/such")
    assert (unknown.status, unknown.code) == (404, 5007)
    assert "@no/such" in unknown.message


def test_verbs_answer_when_it_is_done(edge: Served):
    def act(verb: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> None:
        response = edge.fetch("POST", f"{MODELS}/%40test%2Fa/{verb}", body, headers=headers)
        assert response.json()["name"] == "@test/a", response.body

    act("load", headers={"x-timeout-ms": "5000"})
    act("load/")
    act("unload")
    act("unload?grace=2.5")
    act("sleep", b"")
    act("pin")
    act("pin", b'{"pinned":false}')
    act("reset")
    assert edge.operations.done == [
        ("load", "@test/a", 5),
        ("load", "@test/a", 3600),
        ("unload", "@test/a", None),
        ("unload", "@test/a", 2.5),
        ("sleep", "@test/a"),
        ("pin", "@test/a", True),
        ("pin", "@test/a", False),
        ("reset", "@test/a"),
    ]
    for verb, body in (
        ("unload?grace=-1", b""),
        ("unload?grace=x", b""),
        ("unload?grace=nan", b""),
        ("pin", b'{"pinned":1}'),
        ("pin", b'{"pined":false}'),
        ("pin", b"{"),
    ):
        refused = edge.fetch("POST", f"{MODELS}/@test/a/{verb}", body)
        assert (refused.status, refused.code) == (400, 5006), verb
    assert edge.fetch("POST", f"{MODELS}/@no/such/load").status == 404
    assert edge.fetch("GET", f"{MODELS}/@test/a/load").status == 405
    assert edge.fetch("POST", f"{MODELS}/@test/a").headers["allow"] == "DELETE, GET, HEAD, OPTIONS, PUT"


def test_why_is_explained(edge: Served):
    assert edge.fetch("GET", f"{MODELS}/@test/a/why").json()["summary"]


def test_logs_are_lines_or_events(edge: Served):
    edge.operations.log = [LogLine(time="2026-01-01T00:00:00.000Z", stream="stdout", line=f"line {n}") for n in range(3)]
    response = edge.fetch("GET", f"{MODELS}/@test/a/logs")
    assert response.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line)["line"] for line in response.body.splitlines()] == ["line 0", "line 1", "line 2"]
    assert len(edge.fetch("GET", f"{MODELS}/@test/a/logs?last=1&follow=").body.splitlines()) == 1
    with edge.connect() as connection:
        connection.send_request("GET", f"{MODELS}/@test/a/logs?follow=true")
        stream = connection.events_to_end()
    assert stream.complete and [event.json()["line"] for event in stream.events if event.data] == ["line 0", "line 1", "line 2"]
    assert edge.fetch("GET", f"{MODELS}/@no/such/logs").status == 404
    assert edge.fetch("GET", f"{MODELS}/@test/a/logs?last=x").status == 400


def test_events_come_at_once_and_end_with_their_watcher(edge: Served):
    edge.operations.happens = [{"event": "instance.ready", "model": "@test/a"}]
    edge.operations.goes_on = True
    with edge.connect() as connection:
        connection.send_request("GET", "/api/v1/events")
        head = connection.read_head()
        assert head.headers["content-type"] == "text/event-stream" and head.headers["x-accel-buffering"] == "no"
        events = (event for event in connection.read_events() if event.data)
        assert next(events).json()["event"] == "instance.ready"
        until(lambda: ("following",) in edge.operations.done)
        connection.close()
        until(lambda: ("followed",) in edge.operations.done, what="the subscription ends")


def test_a_caller_that_leaves_a_load_ends_its_wait(edge: Served):
    edge.catalog.add("@test/slow")
    with edge.connect() as connection:
        connection.send_request("POST", f"{MODELS}/@test/slow/load")
        until(lambda: edge.operations.done)
        connection.half_close()
        until(lambda: ("load", "ended") in edge.operations.done, what="nobody waits any more")


def test_a_bug_is_a_500_that_quotes_nothing(edge: Served):
    edge.catalog.add("@test/broken")
    with edge.connect() as connection:
        for _ in range(2):
            connection.send_request("POST", f"{MODELS}/@test/broken/reset", b"")
            response = connection.read_response()
            assert (response.status, response.code) == (500, 3199)
            assert b"sesame" not in response.body and b"Traceback" not in response.body


def test_bundles_are_deployed_under_the_paths_name(serve: Serve):
    edge = serve(max_bundle="1MiB")
    bundle = bytes(range(256)) * 1000
    for chunked in (False, True):
        response = edge.fetch("PUT", f"{MODELS}/@test/new?label=canary", bundle, chunked=chunked)
        assert response.json() == {"name": "@test/new", "version": edge.catalog.models["@test/new"].stable.digest, "state": "stopped"}
    assert edge.catalog.bundles == [(bundle, "@test/new", "canary")] * 2
    large = edge.fetch("PUT", f"{MODELS}/@test/new", bytes(1024 * 1024 + 1))
    assert (large.status, large.code) == (413, 3006) and "1 MiB" in large.message
    assert edge.fetch("PUT", f"{MODELS}/@test/new", bytes(1024 * 1024)).status == 200
    bad = edge.fetch("PUT", f"{MODELS}/@test/new", b"bad")
    assert (bad.status, bad.code) == (400, 5010)
    for target, body in (
        (f"{MODELS}/@test/new?label=beta", b"x"),
        (f"{MODELS}/@test/new", b""),
        (f"{MODELS}/a/../b", b"x"),
        (f"{MODELS}/..", b"x"),
    ):
        assert edge.fetch("PUT", target, body).code == 5006, target
    assert edge.fetch("DELETE", f"{MODELS}/@test/new?version=0123456789ab").status == 400, "one version is named in the path"
    assert edge.fetch("DELETE", f"{MODELS}/%40test%2Fnew").json() == {"name": "@test/new", "removed": True}
    assert edge.fetch("DELETE", f"{MODELS}/@test/new").status == 404


def test_devices_and_nodes(edge: Served):
    assert edge.fetch("GET", "/api/v1/devices").json()["devices"][0]["id"] == "cpu"
    assert edge.fetch("PATCH", "/api/v1/devices/cuda:0", b'{"foreign":"1GiB","frozen":true}').json()["frozen"] is True
    assert edge.operations.done == [("patch", "cuda:0", {"foreign": "1GiB", "frozen": True})]
    assert edge.fetch("PATCH", "/api/v1/devices/cpu", b"{}").status == 400
    assert edge.fetch("PATCH", "/api/v1/devices/cuda:0", b"{").status == 400
    nodes = edge.fetch("GET", "/api/v1/nodes").json()
    assert nodes["main_pid"] == nodes["nodes"][0]["main_pid"] == 1, "this node stands at the top, and in the list of all"


def test_health_metrics_and_head(edge: Served):
    assert edge.fetch("GET", "/health/live").json() == {"status": "live"}
    assert edge.fetch("GET", "/health/ready").json() == {"status": "ready"}
    assert edge.fetch("GET", "/metrics").headers["content-type"].startswith("text/plain; version=0.0.4")
    with edge.connect() as connection:
        for _ in range(2):
            connection.send_request("HEAD", "/health/live")
            response = connection.read_response(of="HEAD")
            assert response.status == 200 and response.headers["content-length"] == "17"


def test_pages_need_nothing_from_elsewhere(edge: Served):
    page = edge.fetch("GET", "/docs")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert not re.findall(rb"""(?:src|href)=["'](?!/)""", page.body)
    assert b"http://" not in page.body and b"https://" not in page.body
    assert edge.fetch("GET", "/").json()["name"] == "fornada"
    assert edge.fetch("GET", "/", headers={"accept": "text/html,*/*"}).body == page.body


def test_the_description_is_of_what_is_there(edge: Served):
    document = edge.fetch("GET", "/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    ids = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            ids.append(operation["operationId"])
            target = re.sub(r"\{\w+\}", "x", path)
            assert {p["name"] for p in operation.get("parameters", []) if p["in"] == "path"} == set(re.findall(r"\{(\w+)\}", path))
            response = edge.fetch(method.upper(), target, b"") if path != "/api/v1/events" else None
            if response is not None:
                # A WebSocket's route is there for who asks for one, and says so to a plain GET.
                assert response.status != 405 or "'Upgrade: websocket'" in response.message, (method, path)
                assert response.status != 404 or response.code != 7000, (method, path)
                assert str(response.status) in operation["responses"], (method, path, response.status)
    assert len(ids) == len(set(ids)) and len(ids) > 25
    assert {"/client/v4/accounts/{account}/ai/run/{model}", "/v1/embeddings", "/api/v1/models/{name}/load"} <= document["paths"].keys()
    for schema in schemas_of(document):
        jsonschema_rs.validator_for(schema)


def test_answers_and_refusals_match_their_description(edge: Served):
    document = edge.fetch("GET", "/openapi.json").json()
    edge.catalog.add("@test/texts", task="text-embeddings")
    asked = [
        ("GET", "/client/v4/accounts/{account}/ai/models/search", "/client/v4/accounts/a/ai/models/search", None),
        ("GET", "/client/v4/accounts/{account}/ai/models/search", "/client/v4/accounts/a/ai/models/search?format=openrouter", None),
        ("GET", "/binding/{key}/ai-api/models/search", "/binding/-/ai-api/models/search?format=openrouter", None),
        ("GET", "/client/v4/accounts/{account}/ai/models/schema", "/client/v4/accounts/a/ai/models/schema?model=@test/a", None),
        ("GET", "/client/v4/accounts/{account}/ai/models/schema", "/client/v4/accounts/a/ai/models/schema?model=@no/such", None),
        ("GET", "/client/v4/accounts/{account}/ai/authors/search", "/client/v4/accounts/a/ai/authors/search", None),
        ("GET", "/client/v4/accounts/{account}/ai/tasks/search", "/client/v4/accounts/a/ai/tasks/search", None),
        ("POST", "/client/v4/accounts/{account}/ai/run/{model}", "/client/v4/accounts/a/ai/run/@test/a", b"{}"),
        ("POST", "/client/v4/accounts/{account}/ai/run/{model}", "/client/v4/accounts/a/ai/run/@test/a", b"{"),
        ("GET", "/v1/models", "/v1/models", None),
        ("GET", "/v1/models/{id}", "/v1/models/@no/such", None),
        ("POST", "/v1/embeddings", "/v1/embeddings", b"{}"),
        ("GET", "/api/v1/models", "/api/v1/models", None),
        ("GET", "/api/v1/models/{name}", "/api/v1/models/@test/a", None),
        ("GET", "/api/v1/models/{name}", "/api/v1/models/@no/such", None),
        ("GET", "/api/v1/models/{name}/why", "/api/v1/models/@test/a/why", None),
        ("GET", "/api/v1/devices", "/api/v1/devices", None),
        ("GET", "/api/v1/nodes", "/api/v1/nodes", None),
        ("GET", "/", "/", None),
    ]
    for method, path, target, body in asked:
        response = edge.fetch(method, target, body)
        described = document["paths"][path][method.lower()]["responses"][str(response.status)]
        schema = {**described["content"]["application/json"]["schema"], "components": document["components"]}
        errors = [error.message for error in jsonschema_rs.validator_for(schema).iter_errors(response.json())]
        assert not errors, (method, target, errors)


def test_published_parameters_of_a_query_come_once(edge: Served):
    document = edge.fetch("GET", "/openapi.json").json()
    tried = 0
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            target = re.sub(r"\{\w+\}", "x", path)
            for name in [each["name"] for each in operation.get("parameters", []) if each["in"] == "query"]:
                response = edge.fetch(method.upper(), f"{target}?{name}=1&z=1&z=2&{name}=1", b"{}")
                tried += 1
                assert response.status == 400 and f"'{name}' comes 2 times" in response.message, (method, target, name, response.body)
    assert tried > 40
    several = "include[]=a&include[]=b&metadata[k]=a&metadata[k]=b&include=a&include=b"
    assert edge.fetch("GET", f"/v1/files?limit=5&{several}").status == 200, "what clients repeat on purpose"


def test_nothing_slow_holds_up_liveness(edge: Served):
    edge.catalog.add("@test/slow")
    with edge.connect() as connection:
        connection.send_request("POST", f"{MODELS}/@test/slow/load")
        until(lambda: edge.operations.done)
        assert edge.fetch("GET", "/health/live").took_s < bound(0.1)


def test_many_operators_requests_on_one_connection_stay_in_order(edge: Served):
    began = time.monotonic()
    with edge.connect() as connection:
        for _ in range(50):
            connection.send_request("GET", "/health/live")
        try:
            assert [connection.read_response(of="GET").status for _ in range(50)] == [200] * 50
        except Closed as error:
            raise AssertionError("closed early") from error
    assert time.monotonic() - began < bound(3)


def schemas_of(document: dict) -> list[dict]:
    found = []
    for methods in document["paths"].values():
        for operation in methods.values():
            bodies = [*operation["responses"].values(), operation.get("requestBody", {})]
            found += [kind["schema"] for body in bodies for kind in body.get("content", {}).values() if "$ref" not in kind["schema"]]
    return found


@pytest.mark.parametrize("target", ["/api/v1/models/..", "/api/v1/models/a%2F..%2Fb", "/api/v1/models/a%00b", "/api/v1/models/%FF"])
@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
def test_names_that_climb_are_bad_requests(edge: Served, method: str, target: str):
    response = edge.fetch(method, target, b"x" if method == "PUT" else None)
    assert (response.status, response.code) == (400, 5006)
