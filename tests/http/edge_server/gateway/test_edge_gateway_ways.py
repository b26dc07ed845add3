"""The ways into a gateway, and what a request may say to it."""

import pytest

from fornada.core.errors import Busy
from tests.http.edge_server.conftest import RUN, Served
from tests.http.edge_server.gateway.conftest import ASK, COMPLETION, DATA, GATEWAYS, ask, logs, put, status
from tests.unit.edge.fakes import answer, refuse


@pytest.mark.parametrize("way", ["workers-ai/@test/a", "workers-ai/@test%2Fa", "workers-ai/%40test%2Fa", "workers-ai/run/@test/a"])
def test_each_spelling_reaches_the_model_and_is_answered_as_without_a_gateway(edge: Served, way: str):
    direct = edge.run(ASK)
    response = ask(edge, target=f"{DATA}/{way}")
    assert (response.status, response.body) == (200, direct.body)
    assert edge.inference.last.request.account == "acc"
    for name in ("cache-status", "log-id", "step", "request-id", "event-id"):
        assert response.headers[f"cf-aig-{name}"], name
    assert response.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("way", "model"),
    [
        ("workers-ai/v1/chat/completions", "@test/text"),
        ("compat/chat/completions", "workers-ai/@test/text"),
        ("compat/chat/completions", "@cf/meta/llama"),
    ],
)
def test_openai_s_routes_are_behind_a_gateway_too(edge: Served, way: str, model: str):
    edge.inference.behaviour = answer(COMPLETION)
    response = ask(edge, {"model": model, "messages": [{"role": "user", "content": "Hi"}]}, f"{DATA}/{way}")
    assert response.json()["choices"][0]["message"]["content"] == "Hi", response.body
    (log,) = logs(edge)
    assert (log["tokens_in"], log["tokens_out"], log["model_type"]) == (3, 2, "text-generation")
    assert log["cost"] == pytest.approx(3 * 1000 * 0.011 / 1000)


@pytest.mark.parametrize("target", [RUN + "@test/a", "/v1/chat/completions"])
def test_a_header_leads_any_request_through_a_gateway(edge: Served, target: str):
    edge.inference.behaviour = answer(COMPLETION)
    body = {"model": "@test/text", "prompt": "x", "messages": [{"role": "user", "content": "Hi"}]}
    plain = edge.fetch("POST", target, payload=body)
    assert plain.status == 200 and not [name for name in plain.headers if name.startswith("cf-aig")]
    put(edge, account="local")
    response = ask(edge, body, target, gateway_id="g", cache_ttl=60)
    assert (response.status, status(response)) == (200, "MISS"), response.body
    assert status(ask(edge, body, target, gateway_id="g", cache_ttl=60)) == "HIT"
    refused = ask(edge, body, target, gateway_id="nothing")
    assert (refused.status, refused.code) == (404, 2001)
    assert ask(edge, body, target, gateway_id="no/name").status == 400


def test_every_account_has_a_default_gateway_and_no_other(edge: Served):
    assert ask(edge, target="/gateway/v1/somebody/default/workers-ai/@test/a").status == 200
    refused = ask(edge, target="/gateway/v1/somebody/g/workers-ai/@test/a")
    assert (refused.status, refused.code) == (404, 2001)


TOKENS = (
    {"cf-aig-authorization": "Bearer token"},
    {"authorization": "Bearer token"},
    {"authorization": "Basic x", "cf-aig-authorization": "Bearer token"},
    {"x-auth-email": "a@b.example", "x-auth-key": "token"},
    {"x-api-key": "token"},
)
NO_TOKENS: tuple[dict[str, str], ...] = (
    {},
    {"authorization": "Basic x"},
    {"cf-aig-authorization": "token"},
    {"cf-aig-authorization": "Bearer "},
    {"cookie": "Bearer token"},
)


@pytest.mark.parametrize("target", [f"{DATA}/workers-ai/@test/a", DATA, RUN + "@test/a"])
def test_a_gateway_with_authentication_refuses_what_has_no_token_and_writes_nothing_down(edge: Served, target: str):
    body = [{"provider": "workers-ai", "endpoint": "@test/a", "query": ASK}] if target == DATA else ASK
    named = {"cf-aig-gateway-id": "g"} if target.startswith(RUN) else {}
    for shown in NO_TOKENS:
        assert edge.fetch("POST", target, payload=body, headers={**named, **shown}).status == 200, "it doesn't ask for one"
    put(edge, authentication=True)
    edge.fetch("DELETE", f"{GATEWAYS}/g/logs")
    edge.inference.requests.clear()
    for shown in NO_TOKENS:
        refused = edge.fetch("POST", target, payload=body, headers={**named, **shown, "cf-aig-max-attempts": "99"})
        assert (refused.status, refused.code) == (401, 10000) and "'g'" in refused.message, shown
    assert not edge.inference.requests and not logs(edge)
    for shown in TOKENS:
        assert edge.fetch("POST", target, payload=body, headers={**named, **shown}).status == 200, shown
    assert edge.fetch("POST", RUN + "@test/a", payload=ASK).status == 200, "another way isn't through the gateway"


@pytest.mark.parametrize("shown", [{}, {"authorization": "Bearer token"}])
def test_what_is_wrong_with_a_body_is_named_before_a_gateway_that_is_not_there(edge: Served, shown: dict[str, str]):
    wrong = edge.fetch("POST", "/gateway/v1/acc/nothing", payload=[{"provider": "workers-ai", "endpoint": ["x"]}], headers=shown)
    assert wrong.status == 400 and "endpoint" in wrong.message, wrong.body
    fine = edge.fetch("POST", "/gateway/v1/acc/nothing", payload=[{"provider": "workers-ai", "endpoint": "@test/a"}], headers=shown)
    assert (fine.status, fine.code) == (404, 2001)


@pytest.mark.parametrize("provider", ["openai", "anthropic", "nothing"])
def test_what_is_elsewhere_is_refused_in_words(edge: Served, provider: str):
    refused = ask(edge, target=f"{DATA}/{provider}/chat/completions")
    assert refused.status == 400 and provider in refused.message and "workers-ai" in refused.message


def test_a_refusal_keeps_its_form_and_has_the_gateway_s_headers(edge: Served):
    refused = ask(edge, target=f"{DATA}/workers-ai/@test/nothing")
    assert (refused.status, refused.code) == (400, 5007)
    assert refused.headers["cf-aig-log-id"] and status(refused) == "MISS"
    superset = ask(edge, {"model": "@test/nothing"}, f"{DATA}/compat/chat/completions")
    assert superset.status == 404 and superset.json()["error"]["code"] == "5007"
    edge.inference.behaviour = refuse(Busy("full", retry_after_s=7))
    assert ask(edge).headers["retry-after"] == "7"


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("cache_ttl", "5"),
        ("cache_ttl", "soon"),
        ("skip_cache", "maybe"),
        ("zdr", "perhaps"),
        ("max_attempts", "6"),
        ("max_attempts", "0"),
        ("retry_delay", "5001"),
        ("request_timeout", "-1"),
        ("backoff", "never"),
        ("metadata", "[]"),
        ("metadata", '{"a": {}}'),
        ("custom_cost", '{"per_token_in": "x"}'),
        ("custom_cost", '{"per_token_in": 1e308}'),
        ("custom_cost", '{"total_cost": -1}'),
        ("cache_key", "k" * 513),
    ],
)
def test_a_header_that_can_t_be_is_named(edge: Served, header: str, value: str):
    refused = ask(edge, **{header: value})
    assert refused.status == 400 and f"cf-aig-{header.replace('_', '-')}" in refused.message
    assert not edge.inference.requests
