"""Who may do what: every route × every kind of caller × both modes, as one table. A route without a line fails."""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from fornada.core.keys import Key, KeyId, Role, new_key
from fornada.core.names import AccountId
from fornada.core.settings import AuthSettings, GatewaysSettings
from fornada.core.usage import UsagePort
from fornada.edge.keyring import Keyring
from tests.harness.client import Closed, Response
from tests.http.edge_server.conftest import Served
from tests.unit.edge.fakes import until

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


@dataclass
class Keys:
    """A KeysPort in memory."""

    held: list[Key] = field(default_factory=list)
    version: int = 0

    def keys(self) -> list[Key]:
        return list(self.held)

    def put_key(self, key: Key) -> None:
        self.held.append(key)
        self.version += 1

    def revoke_key(self, id: KeyId, *, now: float) -> Key | None:
        self.held = [msgspec.structs.replace(key, revoked=now) if key.id == id else key for key in self.held]
        self.version += 1
        return next((key for key in self.held if key.id == id), None)

    def forget_keys(self) -> int:
        count, self.held = len(self.held), []
        self.version += 1
        return count

    def keys_version(self) -> int:
        return self.version


class Locked(Served):
    """An edge with keys, and a client that shows them."""

    def __init__(
        self, *, keyed: bool = True, loopback: bool = True, auth: AuthSettings | None = None, usage: UsagePort | None = None
    ) -> None:
        self.keys = Keys()
        self.mark = [0]
        self.texts: dict[str, str] = {"wrong key": f"fnd_{'0' * 16}_{'1' * 64}"}
        if keyed:
            for name, account, role in (
                ("user", "mine", USER),
                ("deployer", "mine", DEPLOYER),
                ("admin", "mine", ADMIN),
                ("other deployer", "other", DEPLOYER),
                ("other admin", "other", ADMIN),
            ):
                self.create(name, account, role)
        super().__init__(gateways=GatewaysSettings(), keyring=Keyring(self.keys, loopback=loopback, mark=self.mark), auth=auth, usage=usage)
        self.catalog.add("@test/mine", account="mine", visibility="account")

    def create(self, name: str, account: str, role: Role, **limits: Any) -> Key:
        key, self.texts[name] = new_key(AccountId(account), role, now=1.0, chance=secrets.token_bytes, **limits)
        self.keys.put_key(key)
        self.mark[0] += 1
        return key

    def show(self, caller: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.texts[caller]}"} if caller in self.texts else {}

    def ask(self, row: str, caller: str) -> Response:
        method, _, pattern = row.partition(" ")
        for name, value in NAMES.items():
            pattern = pattern.replace(f"{{{name}:path}}", value).replace(f"{{{name}}}", value.replace("/", "%2F"))
        self.catalog.add("@test/mine", account="mine", visibility="account")  # a DELETE may have come before
        return self.fetch(method, pattern, None if method == "GET" else BODY, headers=self.show(caller))


@pytest.fixture
def locked() -> Iterator[Locked]:
    edge = Locked()
    edge.start()
    yield edge
    edge.close()


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
        response = edge.ask(row, caller)
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


def test_each_way_of_showing_a_key_is_understood_and_none_reaches_model_code(locked: Locked):
    text = locked.texts["user"]
    for shown in (
        {"authorization": f"Bearer {text}"},
        {"authorization": f"bearer   {text}"},
        {"authorization": "Bearer another", "cf-aig-authorization": f"Bearer {text}"},
        {"x-auth-email": "a@b.example", "x-auth-key": text},
        {"x-auth-user-service-key": text},
        {"x-api-key": text, "anthropic-version": "2023-06-01"},
        {"authorization": f"Bearer {text}", "x-api-key": "any"},
    ):
        assert locked.fetch("POST", "/client/v4/accounts/mine/ai/run/@test/a", b"{}", headers=shown).status == 200, shown
        assert text not in str(locked.inference.last.head), "no model may see a key"
    for shown in ({"authorization": f"Basic {text}"}, {"authorization": text}, {"x-api-key": text[:-1]}, {"cookie": text}):
        assert locked.fetch("POST", "/client/v4/accounts/mine/ai/run/@test/a", b"{}", headers=shown).status == 401, shown


def test_a_body_is_refused_before_it_is_sent(locked: Locked):
    with locked.connect() as connection:
        connection.send(b"PUT /api/v1/models/@test/mine HTTP/1.1\r\nHost: x\r\nContent-Length: 60000000\r\nExpect: 100-continue\r\n\r\n")
        assert connection.read_response().status == 401


def test_the_first_key_ends_open_mode_on_connections_that_are_open_and_a_revoked_one_is_refused_at_once():
    edge = Locked(keyed=False)
    edge.start()
    try:
        with edge.connect() as plain, edge.connect() as known:

            def run(connection: object, caller: str) -> int:
                connection.send_request("POST", "/client/v4/accounts/mine/ai/run/@test/a", b"{}", edge.show(caller))  # type: ignore[attr-defined]
                return int(connection.read_response().status)  # type: ignore[attr-defined]

            assert run(plain, "no key") == run(plain, "no key") == 200
            key = edge.create("user", "mine", USER)
            assert run(plain, "no key") == 401
            assert run(known, "user") == run(known, "user") == 200
            edge.keys.revoke_key(key.id, now=2.0)
            edge.mark[0] += 1
            assert run(known, "user") == 401
            assert run(plain, "no key") == 401, "with the last key nobody comes in"
            edge.keys.forget_keys()
            edge.mark[0] += 1
            assert run(plain, "no key") == 200
    finally:
        edge.close()


def test_who_follows_something_is_cut_off_with_his_key(locked: Locked):
    locked.operations.goes_on = True
    locked.operations.happens.append({"event": "one"})
    with locked.connect() as mine, locked.connect() as others:
        for connection, caller in ((mine, "admin"), (others, "other admin")):
            connection.send_request("GET", "/api/v1/events", None, locked.show(caller))
        until(lambda: locked.operations.done.count(("following",)) == 2)
        admin = next(key for key in locked.keys.keys() if (key.account, key.role) == ("mine", ADMIN))  # noqa: SIM118
        locked.keys.revoke_key(admin.id, now=2.0)
        locked.mark[0] += 1
        assert locked.fetch("GET", "/health/live").status == 200, "any request lets the node look"
        until(lambda: locked.operations.done.count(("followed",)) == 1)
        with pytest.raises(Closed):
            while True:
                mine.read_response(of="GET")


def test_a_change_is_seen_without_a_mark_too(locked: Locked):
    locked.keys.forget_keys()  # a process that was killed between the two
    until(lambda: locked.fetch("GET", "/api/v1/models").status == 200)


def test_without_keys_a_node_that_others_reach_is_closed_to_everybody():
    edge = Locked(keyed=False, loopback=False)
    edge.start()
    try:
        assert edge.fetch("GET", "/api/v1/models").status == 401
        assert edge.fetch("GET", "/health/live").status == 200
    finally:
        edge.close()


def test_with_keys_any_host_and_origin_will_do_and_pages_read_only_what_they_may(locked: Locked):
    response = locked.fetch(
        "GET", "/api/v1/models", headers={**locked.show("user"), "host": "models.example", "origin": "https://evil.example"}
    )
    assert response.status == 200 and "access-control-allow-origin" not in response.headers
    preflight = {"origin": "http://localhost:3000", "access-control-request-method": "POST"}
    assert locked.fetch("OPTIONS", "/v1/embeddings", headers=preflight).status == 204, "browsers ask it without a key"


def test_a_key_for_some_models_runs_no_others(locked: Locked):
    locked.create("narrow", "mine", USER, models=("@test/mine",))
    assert locked.fetch("POST", "/client/v4/accounts/mine/ai/run/@test/mine", b"{}", headers=locked.show("narrow")).status == 200
    for path, body in (("run/@test/a", b"{}"), ("run", b'{"model": "@test/a"}')):
        response = locked.fetch("POST", f"/client/v4/accounts/mine/ai/{path}", body, headers=locked.show("narrow"))
        assert (response.status, response.code) == (403, 5018)


def test_a_deployer_changes_what_is_his_account_s_and_an_administrator_everything(locked: Locked):
    locked.catalog.add("@test/shared", account="other", visibility="node")
    for caller, status in (("deployer", 403), ("other deployer", 200), ("admin", 200)):
        assert locked.fetch("POST", "/api/v1/models/@test/shared/load", headers=locked.show(caller)).status == status, caller
    assert locked.fetch("GET", "/api/v1/models/@test/shared", headers=locked.show("user")).status == 200, "all may see it"


def test_a_job_knows_the_key_that_it_came_with(locked: Locked):
    target = "/client/v4/accounts/mine/ai/run/@test/mine?queueRequest=true"
    assert locked.fetch("POST", target, payload={"requests": [{}]}, headers=locked.show("user")).status == 200
    assert locked.jobs.last.caller == locked.keys.held[0].id
    assert locked.jobs.last.account == "mine"


GATEWAYS = "/client/v4/accounts/mine/ai-gateway/gateways"
WAY = "/gateway/v1/mine/default/workers-ai/@test/mine"


def test_a_user_reads_the_logs_of_his_own_key_and_a_deployer_his_account_s(locked: Locked):
    asked = locked.fetch("POST", WAY, b"{}", headers=locked.show("deployer"))
    one = f"{GATEWAYS}/default/logs/{asked.headers['cf-aig-log-id']}"
    assert locked.fetch("GET", one, headers=locked.show("deployer")).status == 200
    for method, body in (("GET", None), ("PATCH", b'{"feedback": 1}')):
        assert locked.fetch(method, one, body, headers=locked.show("user")).code == 2002
    own = locked.fetch("POST", WAY, b"{}", headers=locked.show("user")).headers["cf-aig-log-id"]
    for caller in ("user", "deployer"):
        assert locked.fetch("PATCH", f"{GATEWAYS}/default/logs/{own}", b'{"feedback": 1}', headers=locked.show(caller)).status == 200
    assert locked.fetch("GET", f"{GATEWAYS}/default/logs", headers=locked.show("user")).status == 403


def test_what_is_kept_is_no_way_around_a_key_s_models(locked: Locked):
    locked.catalog.add("@test/free", account="mine")
    locked.create("narrow", "mine", USER, models=("@test/free",))
    kept = {"cf-aig-cache-ttl": "60"}
    assert locked.fetch("POST", WAY, b"{}", headers={**locked.show("user"), **kept}).status == 200
    refused = locked.fetch("POST", WAY, b"{}", headers={**locked.show("narrow"), **kept})
    assert (refused.status, refused.code) == (403, 5018)
    named = {"cf-aig-cache-key": "k"}
    other = WAY.replace("@test/mine", "@test/free")
    assert locked.fetch("POST", WAY, b'{"secret": 1}', headers={**locked.show("user"), **named}).status == 200
    answered = locked.fetch("POST", other, b"{}", headers={**locked.show("narrow"), **named})
    assert answered.status == 200 and b"secret" not in answered.body


def test_a_hit_is_none_of_a_key_s_requests_of_a_minute(locked: Locked):
    locked.create("slow", "mine", USER, requests_per_minute=1)
    shown = {**locked.show("slow"), "cf-aig-cache-ttl": "60"}
    assert [locked.fetch("POST", WAY, b"{}", headers=shown).status for _ in range(3)] == [200] * 3
    assert locked.fetch("POST", WAY, b'{"x": 1}', headers=shown).code == 3106
