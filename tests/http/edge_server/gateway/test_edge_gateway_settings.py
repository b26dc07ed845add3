"""Gateways, for their owners."""

from typing import Any

import pytest

from tests.http.edge_server.conftest import Served
from tests.http.edge_server.gateway.conftest import GATEWAYS, put


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


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "id"),
        ({"id": "a b"}, "id"),
        ({"id": 5}, "id"),
        ({"id": "x", "cache_ttl": "long"}, "cache_ttl"),
        ({"id": "x", "cache_ttl": -1}, "cache_ttl"),
        ({"id": "x", "retry_backoff": "never"}, "retry_backoff"),
        ({"id": "x", "collect_logs": 3}, "collect_logs"),
        ({"id": "x", "dlp": {"enabled": True, "action": "BLOCK", "profiles": []}}, "dlp"),
        ([], "object"),
    ],
)
def test_a_gateway_that_can_t_be_is_refused_by_its_field(edge: Served, body: Any, named: str):
    refused = edge.fetch("POST", GATEWAYS, payload=body)
    assert refused.status == 400 and named in refused.message, refused.body


def test_an_address_is_told_for_each_provider_that_is_here(edge: Served):
    host = f"127.0.0.1:{edge.address[1]}"
    for provider, rest in (("workers-ai", "/workers-ai"), ("compat", "/compat"), ("universal", "")):
        url = edge.fetch("GET", f"{GATEWAYS}/g/url/{provider}", headers={"host": host}).result
        assert url == f"http://{host}/gateway/v1/acc/g{rest}"
    assert edge.fetch("GET", f"{GATEWAYS}/g/url/openai").status == 400
    assert edge.fetch("GET", f"{GATEWAYS}/nothing/url/compat").status == 404
