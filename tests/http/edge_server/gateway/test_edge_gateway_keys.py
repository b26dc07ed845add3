"""Whose key finds what at a gateway."""

from fornada.core.keys import Role
from tests.http.edge_server.conftest import Locked

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


def test_a_gateway_with_authentication_takes_the_node_s_keys(locked: Locked):
    asked = {"id": "strict", "authentication": True}
    assert locked.fetch("POST", GATEWAYS, payload=asked, headers=locked.show("deployer")).status == 200
    way = WAY.replace("/default/", "/strict/")
    for caller, status in (("user", 200), ("no key", 401), ("wrong key", 401), ("other deployer", 403)):
        shown = locked.show(caller)
        assert locked.fetch("POST", way, b"{}", headers=shown).status == status, caller
        behind = {"authorization": "Bearer a-provider-s", "cf-aig-authorization": shown.get("authorization", "")}
        assert locked.fetch("POST", way, b"{}", headers=behind).status == (status if shown else 401), caller


def test_what_is_kept_is_no_way_around_a_key_s_models(locked: Locked):
    locked.catalog.add("@test/free", account="mine")
    locked.create("narrow", "mine", Role.USER, models=("@test/free",))
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
    locked.create("slow", "mine", Role.USER, requests_per_minute=1)
    shown = {**locked.show("slow"), "cf-aig-cache-ttl": "60"}
    assert [locked.fetch("POST", WAY, b"{}", headers=shown).status for _ in range(3)] == [200] * 3
    assert locked.fetch("POST", WAY, b'{"x": 1}', headers=shown).code == 3106
