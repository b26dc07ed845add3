"""Gateways, for their owners."""

from typing import Any

import pytest

from fornada.core.gateway import NUMBERS
from tests.http.edge_server.conftest import Served
from tests.http.edge_server.gateway.conftest import GATEWAYS, put

FLAGS = ("cache_invalidate_on_update", "collect_logs", "authentication", "zdr")
CHOICES = ("rate_limiting_technique", "retry_backoff", "log_management_strategy")


def test_gateways_are_made_changed_listed_in_pages_that_end_and_removed(edge: Served):
    base = GATEWAYS.replace("/acc/", "/crud/")
    made = put(
        edge,
        "one",
        "crud",
        cache_ttl=60,
        collect_logs=True,
        cache_invalidate_on_update=True,
        rate_limiting_interval=0,
        rate_limiting_limit=0,
    )
    assert made.result["id"] == "one" and made.result["cache_ttl"] == 60 and made.result["is_default"] is False
    assert edge.fetch("POST", base, payload={"id": "one"}).status == 409
    changed = edge.fetch("PUT", f"{base}/one", payload={"retry_max_attempts": 3}).result
    assert (changed["retry_max_attempts"], changed["cache_ttl"], changed["created_at"]) == (3, 60, made.result["created_at"])
    put(edge, "two", "crud")
    pages = [edge.fetch("GET", f"{base}?per_page=2&page={page}") for page in (1, 2, 3)]
    assert [[each["id"] for each in page.result] for page in pages] == [["default", "one"], ["two"], []]
    assert pages[0].json()["result_info"]["total_count"] == 3
    assert [each["id"] for each in edge.fetch("GET", f"{base}?search=TW").result] == ["two"]
    assert edge.fetch("DELETE", f"{base}/one").result["id"] == "one"
    assert edge.fetch("GET", f"{base}/one").code == edge.fetch("DELETE", f"{base}/one").code == 2001
    assert edge.fetch("GET", f"{GATEWAYS}/two").status == 404, "another account's isn't there"


NEITHER: tuple[Any, ...] = ("long", -1, 1.5, 10**9, True, [], {})
"""No number of any setting's."""
NO_FLAGS: tuple[Any, ...] = ("true", 1, [])
WRONG: list[tuple[str, Any]] = [
    *((name, value) for name in NUMBERS for value in NEITHER),
    *((name, value) for name in FLAGS for value in NO_FLAGS),
    *((name, value) for name in CHOICES for value in ("never", True, 0)),
    ("dlp", {"enabled": True, "action": "BLOCK", "profiles": []}),
    ("dlp", {"action": "BLOCK", "profiles": ["x"]}),
    ("dlp", True),
    ("spend_limits", {"rules": [{"limit": 1, "limitType": "cost", "window": 1}]}),
    ("guardrails", {"prompt": {"S1": "BLOCK"}, "response": {}}),
    ("guardrails", {"promt": {}}),
    ("otel", [{"url": "https://elsewhere.example", "headers": {}}]),
    ("stripe", {"authorization": "x", "usage_events": []}),
    ("logpush", True),
    ("byok_only", True),
    ("log_classification", True),
    ("logpush_public_key", "key"),
    ("store_id", "store"),
    ("workers_ai_billing_mode", "unified"),
    ("cache_tll", 60),
    ("rate_limiting", {}),
    ("created_at", 5),
]


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_setting_that_can_t_be_is_refused_by_its_name_and_changes_nothing(edge: Served, method: str):
    before = edge.fetch("GET", f"{GATEWAYS}/g").result
    for name, value in WRONG:
        where, id = (GATEWAYS, "new") if method == "POST" else (f"{GATEWAYS}/g", "g")
        refused = edge.fetch(method, where, payload={"id": id, name: value, "cache_ttl": 77} | {name: value})
        assert refused.status == 400 and name in refused.message, (name, value, refused.body)
    assert edge.fetch("GET", f"{GATEWAYS}/g").result == before
    assert edge.fetch("GET", f"{GATEWAYS}/new").code == 2001


@pytest.mark.parametrize(
    ("name", "value"), [("otel", [{"url": "x", "headers": {}}]), ("dlp", {"enabled": True}), ("logpush", True), ("store_id", "store")]
)
def test_a_refusal_says_that_the_node_has_nothing_of_the_kind(edge: Served, name: str, value: Any):
    assert "nothing of the kind" in edge.fetch("PUT", f"{GATEWAYS}/g", payload={name: value}).message


def test_a_mistyped_setting_is_told_the_name_that_it_is_like(edge: Served):
    refused = edge.fetch("POST", GATEWAYS, payload={"id": "new", "cache_tll": 60, "retry_max_attempt": 3})
    assert "'cache_tll'" in refused.message and "did you mean" in refused.message and "'cache_ttl'" in refused.message, refused.message


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"{}", "id"),
        (b'{"id": "a b"}', "id"),
        (b'{"id": "a\\n"}', "id"),
        (b'{"id": ""}', "id"),
        (b'{"id": 5}', "id"),
        (b'{"id": "x", "cache_ttl": 60, "cache_ttl": 61}', "cache_ttl"),
        (b"[]", "object"),
        (b"{", "JSON"),
        (b"", "JSON"),
    ],
)
def test_a_body_that_is_no_gateway_is_refused_in_words(edge: Served, body: bytes, named: str):
    refused = edge.fetch("POST", GATEWAYS, body)
    assert refused.status == 400 and named in refused.message, refused.body


def test_what_was_told_can_be_sent_back_and_every_setting_as_what_it_is_without_a_word(edge: Served):
    told = put(edge, retry_delay=60.0, rate_limiting_technique="sliding", zdr=True).result
    assert (told["retry_delay"], type(told["retry_delay"])) == (60, int)
    again = edge.fetch("PUT", f"{GATEWAYS}/g", payload=told)
    assert again.status == 200 and {**again.result, "modified_at": 0} == {**told, "modified_at": 0}
    off: dict[str, Any] = {
        "byok_only": False,
        "dlp": {"enabled": False, "action": "BLOCK", "profiles": []},
        "guardrails": {"prompt": {}, "response": {}},
        "log_classification": False,
        "logpush": False,
        "logpush_public_key": None,
        "otel": [],
        "spend_limits": {"enabled": False, "rules": []},
        "store_id": None,
        "stripe": None,
        "workers_ai_billing_mode": "postpaid",
    }
    for body in (off, dict.fromkeys((*off, *FLAGS))):
        again = edge.fetch("PUT", f"{GATEWAYS}/g", payload=body)
        assert again.status == 200 and {**again.result, "modified_at": 0} == {**told, "modified_at": 0}, again.body
    none = edge.fetch("PUT", f"{GATEWAYS}/g", payload=dict.fromkeys((*NUMBERS, *CHOICES))).result
    assert [none[name] for name in (*NUMBERS, *CHOICES)] == [None] * 9
    renamed = edge.fetch("PUT", f"{GATEWAYS}/g", payload={"id": "h"})
    assert renamed.status == 400 and "'/id'" in renamed.message


def test_the_description_publishes_what_is_checked(edge: Served):
    paths = edge.fetch("GET", "/openapi.json").json()["paths"]
    base = "/client/v4/accounts/{account}/ai-gateway/gateways"
    for path, method in ((base, "post"), (f"{base}/{{gateway}}", "put")):
        schema = paths[path][method]["requestBody"]["content"]["application/json"]["schema"]
        assert schema["additionalProperties"] is False
        assert schema["properties"].keys() >= {*NUMBERS, *FLAGS, *CHOICES}
        for name, bounds in NUMBERS.items():
            assert (schema["properties"][name]["minimum"], schema["properties"][name]["maximum"]) == bounds


def test_an_address_is_told_for_each_provider_that_is_here(edge: Served):
    host = f"127.0.0.1:{edge.address[1]}"
    for provider, rest in (("workers-ai", "/workers-ai"), ("compat", "/compat"), ("universal", "")):
        url = edge.fetch("GET", f"{GATEWAYS}/g/url/{provider}", headers={"host": host}).result
        assert url == f"http://{host}/gateway/v1/acc/g{rest}"
    assert edge.fetch("GET", f"{GATEWAYS}/g/url/openai").status == 400
    assert edge.fetch("GET", f"{GATEWAYS}/nothing/url/compat").status == 404
