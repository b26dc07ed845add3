"""Keys at the gate: how they are shown, when they begin and cease to count, and what each is good for."""

import pytest

from fornada.core.keys import Role
from tests.harness.client import Closed
from tests.http.edge_server.conftest import Locked
from tests.unit.edge.fakes import until


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
            key = edge.create("user", "mine", Role.USER)
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
        admin = next(key for key in locked.keys.keys() if (key.account, key.role) == ("mine", Role.ADMIN))  # noqa: SIM118
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
    locked.create("narrow", "mine", Role.USER, models=("@test/mine",))
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
