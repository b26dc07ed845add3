"""Who may do what: every route × every kind of caller × both modes, as one table. A route without a line fails."""

from collections.abc import Iterator

import pytest

from fornada.core.keys import Role
from tests.harness.client import Response
from tests.http.edge_server.conftest import Locked

NOBODY, USER, DEPLOYER, ADMIN = Role.NOBODY, Role.USER, Role.DEPLOYER, Role.ADMIN
AI = "/client/v4/accounts/{account}/ai"
MODEL = "/api/v1/models/{name:path}"
TFS = "/v1/models/{name:path}"
ABOUT_TFS = {
    f"GET {TFS}/metadata": USER,
    **{f"GET {TFS}/{place}{each}": USER for place in ("versions/{number}", "labels/{label}") for each in ("", "/metadata")},
}
V2 = "/v2/models/{name:path}"
OF_V2 = {f"GET {base}{each}": USER for base in (V2, f"{V2}/versions/{{version}}") for each in ("", "/ready", "/config", "/stats")} | {
    "POST /v2/repository/models/{name:path}/load": DEPLOYER,
    "POST /v2/repository/models/{name:path}/unload": DEPLOYER,
}

MAY = {
    "GET /": NOBODY,
    "GET /docs": NOBODY,
    "GET /openapi.json": NOBODY,
    "GET /health/live": NOBODY,
    "GET /health/ready": NOBODY,
    f"POST {AI}/run": USER,
    f"POST {AI}/run/{{model:path}}": USER,
    f"GET {AI}/run/{{model:path}}": USER,
    f"GET {AI}/models/search": USER,
    f"GET {AI}/models/schema": USER,
    f"GET {AI}/authors/search": USER,
    f"GET {AI}/tasks/search": USER,
    f"POST {AI}/tomarkdown": USER,
    f"GET {AI}/tomarkdown/supported": USER,
    f"POST {AI}/finetunes": DEPLOYER,
    f"GET {AI}/finetunes": USER,
    f"GET {AI}/finetunes/public": USER,
    f"POST {AI}/finetunes/{{finetune}}/finetune-assets": DEPLOYER,
    f"DELETE {AI}/finetunes/{{finetune}}": DEPLOYER,
    **{
        f"{method} /client/v4/accounts/{{account}}/ai-gateway/gateways{rest}": role
        for method, rest, role in (
            ("GET", "", USER),
            ("POST", "", DEPLOYER),
            ("GET", "/{gateway}", USER),
            ("PUT", "/{gateway}", DEPLOYER),
            ("DELETE", "/{gateway}", DEPLOYER),
            ("GET", "/{gateway}/logs", DEPLOYER),
            ("DELETE", "/{gateway}/logs", DEPLOYER),
            ("GET", "/{gateway}/logs/{log}", USER),
            ("PATCH", "/{gateway}/logs/{log}", USER),
            ("GET", "/{gateway}/logs/{log}/request", USER),
            ("GET", "/{gateway}/logs/{log}/response", USER),
            ("GET", "/{gateway}/url/{provider}", USER),
        )
    },
    "POST /gateway/v1/{account}/{gateway}": USER,
    "POST /gateway/v1/{account}/{gateway}/{endpoint:path}": USER,
    **{
        f"{each}": USER
        for base in ("/v1", f"{AI}/v1")
        for each in (
            f"POST {base}/chat/completions",
            f"POST {base}/completions",
            f"POST {base}/embeddings",
            f"POST {base}/responses",
            f"POST {base}/messages",
            f"GET {base}/responses/{{id}}",
            f"DELETE {base}/responses/{{id}}",
            f"GET {base}/responses/{{id}}/input_items",
            f"POST {base}/audio/transcriptions",
            f"POST {base}/audio/translations",
            f"POST {base}/audio/speech",
            f"POST {base}/images/generations",
            f"GET {base}/models",
            f"GET {base}/models/{{id:path}}",
            f"POST {base}/files",
            f"GET {base}/files",
            f"GET {base}/files/{{id}}",
            f"DELETE {base}/files/{{id}}",
            f"GET {base}/files/{{id}}/content",
            f"POST {base}/batches",
            f"GET {base}/batches",
            f"GET {base}/batches/{{id}}",
            f"POST {base}/batches/{{id}}/cancel",
        )
    },
    "POST /binding/{key}/run": USER,
    "GET /binding/{key}/run": USER,
    "GET /binding/{key}/ai-api/models/search": USER,
    "POST /binding/{key}/to-everything/markdown/transformer": USER,
    "GET /binding/{key}/to-everything/markdown/supported": USER,
    "POST /binding/{key}/ai-gateway/run": USER,
    "POST /binding/{key}/ai-gateway/universal/run/{gateway}": USER,
    "GET /binding/{key}/ai-gateway/gateways/{gateway}/url/{provider}": USER,
    "GET /binding/{key}/ai-gateway/gateways/{gateway}/logs/{log}": USER,
    "PATCH /binding/{key}/ai-gateway/gateways/{gateway}/logs/{log}": USER,
    **{
        f"POST {base}:{verb}": USER
        for base in (TFS, f"{TFS}/versions/{{number}}", f"{TFS}/labels/{{label}}")
        for verb in ("predict", "classify", "regress")
    },
    **ABOUT_TFS,
    "GET /v2": NOBODY,
    "GET /v2/health/live": NOBODY,
    "GET /v2/health/ready": NOBODY,
    "POST /v2/repository/index": USER,
    f"POST {V2}/infer": USER,
    f"POST {V2}/versions/{{version}}/infer": USER,
    **OF_V2,
    **{
        f"{each}": USER
        for memory in ("system", "cuda")
        for each in (
            f"GET /v2/{memory}sharedmemory/status",
            f"POST /v2/{memory}sharedmemory/region/{{region}}/register",
            f"POST /v2/{memory}sharedmemory/region/{{region}}/unregister",
            f"POST /v2/{memory}sharedmemory/unregister",
        )
    },
    "GET /api/v1/models": USER,
    f"GET {MODEL}": USER,
    f"PUT {MODEL}": DEPLOYER,
    f"DELETE {MODEL}": DEPLOYER,
    f"POST {MODEL}/load": DEPLOYER,
    f"POST {MODEL}/unload": DEPLOYER,
    f"POST {MODEL}/sleep": DEPLOYER,
    f"POST {MODEL}/pin": DEPLOYER,
    f"POST {MODEL}/reset": DEPLOYER,
    f"GET {MODEL}/why": DEPLOYER,
    f"GET {MODEL}/logs": DEPLOYER,
    "GET /api/v1/jobs/{id}": USER,
    "POST /api/v1/jobs/{id}/cancel": USER,
    "GET /api/v1/usage": USER,
    "GET /metrics": ADMIN,
    "GET /api/v1/devices": ADMIN,
    "PATCH /api/v1/devices/{device}": ADMIN,
    "GET /api/v1/residency": ADMIN,
    "GET /api/v1/nodes": ADMIN,
    "GET /api/v1/events": ADMIN,
    "POST /api/v1/prune": ADMIN,
}
"""Method and pattern of a route -> the least role that a key for it has."""
NAMED_IN_THE_BODY = (
    "chat/completions",
    "completions",
    "embeddings",
    "responses",
    "messages",
    "audio/speech",
    "images/generations",
)
"""Below /v1, where the body is JSON."""
PRIVATE = {
    row for row in MAY if MODEL in row or "/v2/models/" in row or row in OF_V2 or TFS in row or row == "GET /v1/models/{id:path}"
} | {f"POST /v1/{each}" for each in NAMED_IN_THE_BODY}
"""Routes that name a model, which the table's requests do with one that is its account's alone."""
NAMES = {
    "account": "mine",
    "model": "@test/mine",
    "name": "@test/mine",
    "id": "@test/mine",
    "device": "cuda:0",
    "version": "stable",
    "region": "r",
    "gateway": "default",
    "log": "x",
    "provider": "workers-ai",
    "endpoint": "workers-ai/@test/mine",
    "number": "1",
    "label": "stable",
    "key": "-",
}
BODY = b'{"model": "@test/mine", "input": "x"}'
CALLERS = ["no key", "wrong key", "user", "deployer", "admin", "other deployer", "other admin"]


def ask(edge: Locked, row: str, caller: str) -> Response:
    method, _, pattern = row.partition(" ")
    for name, value in NAMES.items():
        pattern = pattern.replace(f"{{{name}:path}}", value).replace(f"{{{name}}}", value.replace("/", "%2F"))
    edge.catalog.add("@test/mine", account="mine", visibility="account")  # a DELETE may have come before
    return edge.fetch(method, pattern, None if method == "GET" else BODY, headers=edge.show(caller))


@pytest.fixture(scope="module", params=["open", "keyed"])
def mode(request: pytest.FixtureRequest) -> Iterator[tuple[str, Locked]]:
    edge = Locked(keyed=request.param == "keyed")
    edge.start()
    yield request.param, edge
    edge.close()


def test_every_route_has_a_line_in_the_table(locked: Locked):
    served = {
        f"{method} {route.pattern}": operation.needs for route in locked.server.routes for method, operation in route.operations.items()
    }
    assert served.keys() == MAY.keys()
    assert served == MAY


@pytest.mark.parametrize("caller", CALLERS)
def test_the_table_of_who_may_do_what(mode: tuple[str, Locked], caller: str):
    name, edge = mode
    for row, needed in MAY.items():
        response = ask(edge, row, caller)
        refused = (response.status, response.code) if response.status in (401, 403) else None
        assert refused == refusal(name, caller, row, needed), (row, response.status, response.body[:200])


def refusal(mode: str, caller: str, row: str, needed: Role) -> tuple[int, int] | None:
    """Status and code that the table's rules ask for; None: it may."""
    words = caller.split()
    other = words[0] == "other"
    role = NOBODY if words[-1] == "key" else Role[words[-1].upper()]
    if mode == "open":
        # Everybody is `local` where the path names no account, and the model isn't that account's.
        return (403, 5018) if row in PRIVATE else None
    if role < needed:
        return (401, 10000) if role is NOBODY else (403, 10000)
    if not other:
        return None
    if "{account}" in row:
        return (403, 10000)
    if role is ADMIN and (MODEL in row or row in OF_V2 or row in ABOUT_TFS) and not row.startswith("PUT "):
        return None  # the whole node
    return (403, 5018) if row in PRIVATE else None


@pytest.mark.parametrize("path", ["/nothing", "/api/v1/nothing", "/v1/nothing", "/client/v4/accounts/mine/nothing"])
def test_what_is_not_there_is_told_to_key_holders_alone(locked: Locked, path: str):
    for caller in ("no key", "wrong key"):
        assert (locked.fetch("GET", path, headers=locked.show(caller)).status) == 401
    assert locked.fetch("GET", path, headers=locked.show("user")).status in (400, 404)


@pytest.mark.parametrize(
    "spelled",
    [
        "/api/v1/nodes/",
        "/api/v1/nodes//",
        "//api/v1/nodes",
        "/api/v1/%6eodes",
        "/API/v1/nodes",
        "/api/v1/./nodes",
        "/api/v1/models/../nodes",
        "/api/v1/models/%2e%2e/nodes",
        "/health/live/../../api/v1/nodes",
        "/docs/../metrics",
        "/metrics/",
        "/metrics?x",
        "/metrics#/docs",
        "/client/v4/accounts/mine/../../../../metrics",
        "http://x/metrics",
    ],
)
def test_no_spelling_of_a_path_gets_around_the_gate(locked: Locked, spelled: str):
    for method in ("GET", "HEAD", "POST"):
        for caller in ("no key", "user"):
            response = locked.fetch(method, spelled, headers=locked.show(caller))
            assert response.status in (400, 401, 403, 404, 405), (method, caller, response.status)
            assert b"control_pid" not in response.body and b"fornada_" not in response.body


@pytest.mark.parametrize("account", ["other", "MINE", "mine%20", "%6dine%00", "mine%2F..", "", "."])
def test_no_spelling_of_an_account_makes_it_another(locked: Locked, account: str):
    for path in ("ai/run/@test/a", "ai/models/search", "ai/v1/models"):
        method = "POST" if "run" in path else "GET"
        response = locked.fetch(
            method, f"/client/v4/accounts/{account}/{path}", b"{}" if method == "POST" else None, headers=locked.show("user")
        )
        assert response.status in (400, 403, 404), (path, response.status)
    assert locked.inference.requests == []
    assert locked.fetch("POST", "/client/v4/accounts/%6dine/ai/run/@test/a", b"{}", headers=locked.show("user")).status == 200
