"""Case 37: every name that a model may have works in every route; a name that climbs is refused."""

from urllib.parse import quote

import pytest

from tests.harness.bundles import archive, packed, write_probe
from tests.harness.node import RUN, Node

NAMES = [
    "@cf/org/name",
    "org/name",
    "plain",
    "a/b",
    "deep/er/and/deep.er",
    "with.dots/v1.5-x.y",
    "@test/ünïcödé-模型",
    "with space/in it",
    "UPPER/Case",
    "@test/load-balancer",
    "1/2",
]


def spellings(name: str) -> list[str]:
    """As curl, the SDKs and a generic encoder write it."""
    return [quote(name, safe="/@:"), quote(name, safe="@"), quote(name, safe="")]


@pytest.mark.parametrize("name", NAMES)
def test_list_get_run_and_delete_agree_on_a_name(node: Node, name: str):
    code = "def handle_request(request, context):\n    return {'echo': request.body.json['echo']}\n"
    version = node.deploy(name, archive({"model.toml": 'name = "@test/overridden"\n', "model.py": code}))["version"]
    listed = [model["name"] for model in node.fetch("GET", "/api/v1/models").json()["models"]]
    assert name in listed and "@test/overridden" not in listed, "the path's name beats model.toml's"
    search = node.fetch("GET", "/client/v4/accounts/local/ai/models/search?per_page=1000").result
    assert name in [item["name"] for item in search]
    assert node.fetch("GET", f"/client/v4/accounts/local/ai/models/schema?model={quote(name, safe='')}").result["input"]
    for spelled in spellings(name):
        assert node.fetch("GET", f"/api/v1/models/{spelled}").json()["name"] == name
        for tail in ("", "/", ":stable", f":{version[:12]}"):
            answer = node.fetch("POST", f"{RUN}{spelled}{tail}", payload={"echo": tail})
            assert answer.result["echo"] == tail, (spelled, tail)
    assert node.fetch("POST", RUN.rstrip("/"), payload={"model": name, "input": {"echo": 5}}).result["echo"] == 5
    assert node.fetch("DELETE", f"/api/v1/models/{spellings(name)[2]}").status in (200, 204)
    assert name not in [model["name"] for model in node.fetch("GET", "/api/v1/models").json()["models"]]
    gone = node.run(name, {"echo": 1})
    assert (gone.status, gone.code) == (400, 5007)
    assert node.fetch("GET", f"/api/v1/models/{spellings(name)[0]}").status == 404


@pytest.mark.parametrize(
    "spelled",
    ["..", "../x", "a/../b", "%2e%2e/x", "a%2F..%2Fb", "a/%2e%2e/b", "a%00b", "..%2f..%2fetc%2fpasswd", "%2e%2e%2f%2e%2e", "a//b"],
)
def test_a_name_that_climbs_is_a_bad_request_everywhere(node: Node, spelled: str):
    run = node.fetch("POST", RUN + spelled, payload={"echo": 1})
    assert run.status == 400, run.body
    run.json()
    bundle = archive({"model.toml": 'name = "x"\n', "model.py": "def handle_request(r, c): return {}\n"})
    for method, body in (("GET", None), ("PUT", bundle), ("DELETE", None)):
        answer = node.fetch(method, f"/api/v1/models/{spelled}", body)
        assert answer.status in (400, 404, 405), (method, answer.status, answer.body)
    assert node.fetch("PUT", f"/api/v1/models/{spelled}", bundle).status == 400


@pytest.mark.parametrize(
    "name", ["@test/load", "x/versions", "why", "a/b/unload", "@test/a:b", "@test/with?query", "@test/with#hash", "@test/with%25"]
)
def test_names_that_no_route_could_tell_apart_are_refused_at_deploy(node: Node, name: str):
    bundle = archive({"model.toml": f'name = "{name}"\n', "model.py": "def handle_request(r, c): return {}\n"})
    answer = node.fetch("PUT", f"/api/v1/models/{quote(name, safe='/@')}", bundle)
    assert answer.status in (400, 404, 405), answer.body
    assert answer.json()["success"] is False


def test_unknown_versions_and_labels_are_told_from_unknown_models(node: Node, tmp_path):
    node.deploy("@test/versions-of", packed(write_probe(tmp_path / "probe", "@test/versions-of")))
    for tail, status in ((":canary", 400), (":0123456789ab", 400), (":nonsense", 400), (":", 400)):
        answer = node.fetch("POST", f"{RUN}@test/versions-of{tail}", payload={"echo": 1})
        assert answer.status == status, (tail, answer.body)


def test_a_folder_with_only_model_py_gets_a_local_name(node: Node):
    """Omni's minimal shape."""
    node.deploy("@local/minimal", archive({"model.py": "def handle_request(request, context):\n    return 'bare text'\n"}))
    answer = node.run("@local/minimal", {})
    assert answer.result == "bare text"
    assert node.model("@local/minimal")["task"] == "custom"


def test_an_alias_runs_the_same_model(node: Node):
    toml = 'name = "@test/aliased"\naliases = ["@cf/test/alias", "other-name"]\n'
    node.deploy(
        "@test/aliased", archive({"model.toml": toml, "model.py": "import os\ndef handle_request(r, c):\n    return {'pid': c.pid}\n"})
    )
    answers = {node.ask(name, {})["pid"] for name in ("@test/aliased", "@cf/test/alias", "other-name")}
    assert len(answers) == 1
    assert node.model("@test/aliased")["aliases"] == ["@cf/test/alias", "other-name"]
