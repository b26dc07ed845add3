"""Fine-tunes over HTTP: every form that a client sends, and how refusals are told."""

import json

from tests.harness.adapters import config, form, weights
from tests.harness.client import Response
from tests.http.edge_server.conftest import Served

BASE = "/client/v4/accounts/acc/ai/finetunes"


def made(edge: Served, **fields: object) -> str:
    answer = edge.fetch("POST", BASE, payload={"model": "@test/a", "name": "tone", **fields})
    assert answer.status == 200, answer.body
    return str(answer.json()["result"]["id"])


def upload(edge: Served, id: str, name: str, data: bytes) -> Response:
    body, kind = form(name, data)
    return edge.fetch("POST", f"{BASE}/{id}/finetune-assets", body, headers={"content-type": kind})


def test_a_fine_tune_is_begun_filled_listed_and_removed(edge: Served):
    id = made(edge, description="Friendly", public=True)
    answer = upload(edge, id, "adapter_config.json", config()).json()
    assert answer["success"] is True and answer["result"]["file_name"] == "adapter_config.json"
    assert upload(edge, id, "adapter_model.safetensors", weights()).json()["success"] is True
    assert edge.finetunes.find("acc", "tone").id == id  # type: ignore[arg-type]
    for path in (BASE, f"{BASE}/", f"{BASE}?", f"{BASE}/public", "/client/v4/accounts/other/ai/finetunes/public"):
        (listed,) = edge.fetch("GET", path).json()["result"]
        assert (listed["id"], listed["name"], listed["model"], listed["description"]) == (id, "tone", "@test/a", "Friendly"), path
        assert listed["public"] is True and listed["created_at"].endswith("Z")
    assert edge.fetch("GET", "/client/v4/accounts/other/ai/finetunes").json()["result"] == []
    assert edge.fetch("DELETE", f"/client/v4/accounts/other/ai/finetunes/{id}").status == 404
    assert edge.fetch("DELETE", f"{BASE}/{id}").json()["result"] == {"id": id}
    assert edge.fetch("GET", BASE).json()["result"] == []


def test_wrangler_sends_json_as_plain_text(edge: Served):
    body = json.dumps({"model": "@test/a", "name": "tone", "description": ""}).encode()
    answer = edge.fetch("POST", f"{BASE}?", body, headers={"content-type": "text/plain;charset=UTF-8"})
    assert answer.status == 200 and answer.json()["result"]["name"] == "tone"


def test_the_base_model_is_stored_by_its_own_name(edge: Served):
    edge.catalog.add("@test/chat", aliases=["@cf/meta/llama"])
    assert edge.fetch("POST", BASE, payload={"model": "@cf/meta/llama", "name": "x"}).json()["result"]["model"] == "@test/chat"
    assert edge.fetch("POST", BASE, payload={"model": "later/one", "name": "x"}).json()["result"]["model"] == "later/one"


def test_what_a_body_lacks_is_named(edge: Served):
    for fields, named in (
        ({}, "'model'"),
        ({"model": "@test/a"}, "'name'"),
        ({"model": 5, "name": "x"}, "'/model'"),
        ({"model": "@test/a", "name": ""}, "'/name'"),
        ({"model": "@test/a", "name": "x" * 200}, "'/name'"),
        ({"model": "@test/a", "name": "x", "description": []}, "'/description'"),
        ({"model": "@test/a", "name": "x", "public": "yes"}, "'/public'"),
        ({"model": "../up", "name": "x"}, "name"),
    ):
        answer = edge.fetch("POST", BASE, payload=fields)
        assert (answer.status, answer.code) == (400, 5006) and named in answer.json()["errors"][0]["message"], fields
    assert edge.fetch("POST", BASE, payload={"model": "@test/a", "name": "x", "description": None, "public": None}).status == 200


def test_a_form_that_is_none_is_a_bad_request(edge: Served):
    id = made(edge)
    whole, kind = form("adapter_config.json", config())
    for body, type in ((b"{}", "application/json"), (whole[:-20], kind), (whole.replace(b'"file_name"', b'"name"'), kind), (b"", kind)):
        answer = edge.fetch("POST", f"{BASE}/{id}/finetune-assets", body, headers={"content-type": type})
        assert (answer.status, answer.code) == (400, 5006), (type, answer.body)


def test_an_upload_that_can_t_be_taken_says_success_false(edge: Served):
    id = made(edge)
    for name, data, code in (("weights.bin", b"x", 5006), ("adapter_config.json", b"x", 5006)):
        answer = upload(edge, id, name, data)
        assert (answer.status, answer.json()["success"], answer.json()["errors"][0]["code"]) == (200, False, code)
    answer = upload(edge, "no-such", "adapter_config.json", config())
    assert (answer.status, answer.json()["success"], answer.json()["errors"][0]["code"]) == (200, False, 5014)


def test_cloudflare_python_gets_the_object_that_its_type_says(edge: Served):
    stainless = {"x-stainless-lang": "python"}
    assert edge.fetch("GET", BASE, headers=stainless).json()["result"] == []
    ids = [made(edge), made(edge)]
    result = edge.fetch("GET", BASE, headers=stainless).json()["result"]
    assert result["id"] == ids[1] and [each["id"] for each in result["finetunes"]] == ids[::-1]
    for headers in ({"x-stainless-lang": "js"}, {"user-agent": "wrangler/4.86.0"}, {}):
        assert [each["id"] for each in edge.fetch("GET", BASE, headers=headers).json()["result"]] == ids[::-1]


def test_the_public_list_is_cut_and_sorted(edge: Served):
    for name in ("b", "c", "a"):
        made(edge, name=name, public=True)

    def names(query: str) -> list[str]:
        return [each["name"] for each in edge.fetch("GET", f"{BASE}/public?{query}").json()["result"]]

    assert names("") == names("limit=0&offset=0&orderBy=orderBy") == ["a", "c", "b"]
    assert names("orderBy=name") == ["a", "b", "c"]
    assert names("orderBy=name&limit=1.0&offset=1") == ["b"]
    assert names("offset=9") == []
    assert edge.fetch("GET", f"{BASE}/public?limit=-1").status == 400
