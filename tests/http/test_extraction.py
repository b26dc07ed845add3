"""What one account has on a node, another one can't find out: not from a route, a refusal, a log or a metric."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.bundles import packed, write_probe
from tests.harness.client import Response
from tests.harness.fixtures import StartNode
from tests.harness.node import Node
from tests.harness.waiting import Background, until
from tests.http.edge_server.test_edge_access import MAY
from tests.http.test_keys import bearer, create

CONFIG = """
[node]
drain_s = 5
kill_s = 2
[devices]
fake = [{ total = "1GiB" }]
"""
CANARY = "canary-of-alpha"
"""In all names that account alpha gives."""
THEIRS, OURS = f"@{CANARY}/private", "@beta/mine"
ALIAS = "an-alias-of-alpha"
ALPHA_SAYS, BETA_SAYS = "alpha tells nobody", "beta tells nobody"
"""Inputs, and outputs as well: the probe gives them back."""


class Tenants:
    """Two accounts on a node with room for one of their models."""

    def __init__(self, node: Node, folder: Path) -> None:
        self.node = node
        self.folder = folder
        self.admin = create(node, "ops", "admin")
        self.alpha = create(node, "alpha", "deployer")
        self.beta = create(node, "beta", "deployer")
        self.beta_user = create(node, "beta", "user")
        self.heard: list[tuple[str, Response]] = []
        """All that account beta was answered."""

    def ask(self, key: dict[str, Any], method: str, target: str, body: Any = None, **headers: str) -> Response:
        raw = body if isinstance(body, bytes) else None
        answer = self.node.fetch(
            method,
            target,
            raw,
            payload=None if raw is not None or body is None else body,
            headers={**bearer(key), **{name.replace("_", "-"): value for name, value in headers.items()}},
        )
        if key in (self.beta, self.beta_user):
            self.heard.append((f"{method} {target}", answer))
        return answer

    def run(self, key: dict[str, Any], model: str, body: Any, query: str = "", **headers: str) -> Response:
        account = "alpha" if key is self.alpha else "beta"
        return self.ask(key, "POST", f"/client/v4/accounts/{account}/ai/run/{model}{query}", body, **headers)

    def bind(self, key: dict[str, Any], model: str, inputs: Any) -> Response:
        """As a Worker asks it, with the key in the path."""
        shown = {"MF-URL": "https://workers-binding.ai/run?version=3", "MF-Header-cf-consn-model-id": model}
        answer = self.node.fetch("POST", f"/binding/{key['key']}/", payload={"inputs": inputs}, headers=shown)
        if key in (self.beta, self.beta_user):
            self.heard.append((f"env.AI.run {model}", answer))
        return answer

    def deploy(self, key: dict[str, Any], name: str, *, alias: str = "", **settings: Any) -> Response:
        folder = self.folder / name.replace("/", "-")
        resources = {"device": "cuda:0", "device_memory": "700MiB"}
        write_probe(folder, name, settings={"device_mib": 700, "sleeps": False, **settings}, serving={"queue": 2}, resources=resources)
        if alias:
            spec = folder / "model.toml"
            spec.write_text(f'aliases = ["{alias}"]\n{spec.read_text()}')
        return self.ask(key, "PUT", f"/api/v1/models/{name}", packed(folder), content_type="application/gzip")

    def why(self) -> Any:
        return self.ask(self.beta, "GET", f"/api/v1/models/{OURS}/why").json()

    def look_everywhere(self, job: str = "none") -> None:
        """Everything that account beta may read."""
        for row in MAY:
            method, _, pattern = row.partition(" ")
            if method != "GET":
                continue
            for name, value in {"account": "beta", "name:path": OURS, "id:path": OURS, "id": job}.items():
                pattern = pattern.replace(f"{{{name}}}", value)
            for key in (self.beta, self.beta_user):
                self.ask(key, "GET", pattern)

    def assert_nothing_was_said(self) -> None:
        for what, answer in self.heard:
            for canary in (CANARY, ALPHA_SAYS):
                assert canary not in answer.body.decode(), (what, answer.body)
                assert canary not in str(answer.headers), (what, answer.headers)


@pytest.fixture
def background() -> Iterator[Background]:
    with Background() as made:
        yield made


@pytest.fixture
def tenants(new_node: StartNode, tmp_path: Path) -> Iterator[Tenants]:
    node = new_node(config=CONFIG).start()
    made = Tenants(node, tmp_path)
    assert made.deploy(made.alpha, THEIRS, alias=ALIAS).status == 200
    assert made.deploy(made.beta, OURS).status == 200
    yield made
    made.assert_nothing_was_said()


def test_who_waits_for_room_is_not_told_whose_it_is(tenants: Tenants, background: Background):
    theirs = f"/api/v1/models/{THEIRS}"
    assert tenants.ask(tenants.alpha, "POST", f"{theirs}/pin").status == 200
    assert tenants.ask(tenants.alpha, "POST", f"{theirs}/load").status == 200
    waiting = background.start(lambda: tenants.run(tenants.beta, OURS, {"echo": BETA_SAYS}, x_timeout_ms="3000"))
    until(lambda: "another model is kept loaded" in tenants.why()["summary"], within_s=20, what="it waits for room")
    holders = tenants.why()["devices"][1]["holders"]
    assert [(each["model"], each["instance"], each["bytes"] > 0) for each in holders] == [("another model", "", True)]
    assert [each["model"] for each in tenants.why()["residents"]] == ["another model"]
    listed = tenants.ask(tenants.beta_user, "GET", "/api/v1/models").json()["models"]
    assert "another model is kept loaded" in next(each["why"] for each in listed if each["name"] == OURS)
    tenants.look_everywhere()
    refused = waiting.result()
    assert refused.status == 408 and b"another model is kept loaded" in refused.body
    shown = tenants.ask(tenants.admin, "GET", f"/api/v1/models/{OURS}/why").json()
    assert [each["model"] for each in shown["residents"]] == [THEIRS], "an administrator sees whose it is"
    assert tenants.ask(tenants.alpha, "POST", f"{theirs}/pin", {"pinned": False}).status == 200
    working = background.start(lambda: tenants.run(tenants.alpha, THEIRS, {"echo": ALPHA_SAYS, "sleep_s": 2.0}))
    asked = background.start(lambda: tenants.run(tenants.beta, OURS, {"echo": BETA_SAYS}))
    tenants.look_everywhere()
    assert working.result().status == asked.result().status == 200
    tenants.look_everywhere()


def test_floods_failures_names_and_jobs_of_one_account_tell_another_nothing(tenants: Tenants, background: Background):
    node = tenants.node
    flood = [background.start(lambda: tenants.run(tenants.alpha, THEIRS, {"echo": ALPHA_SAYS, "sleep_s": 0.3})) for _ in range(6)]
    batch = {"requests": [{"echo": ALPHA_SAYS}, {"bad": True, "echo": ALPHA_SAYS}]}
    job = tenants.run(tenants.alpha, THEIRS, batch, "?queueRequest=true", idempotency_key="1").result["request_id"]
    batch = {"requests": [{"echo": BETA_SAYS}]}
    ours = tenants.run(tenants.beta, OURS, batch, "?queueRequest=true", idempotency_key="1").result["request_id"]
    assert ours != job, "keys of one account mean nothing to another"
    for key in (tenants.beta, tenants.beta_user):
        assert tenants.ask(key, "GET", f"/api/v1/jobs/{job}").status == 404
        assert tenants.ask(key, "POST", f"/api/v1/jobs/{job}/cancel").status == 404
        tenants.run(key, OURS, {"request_id": job})
    tenants.look_everywhere(ours)
    assert {each.result().status for each in flood} <= {200, 429}
    assert tenants.run(tenants.alpha, THEIRS, {"die": True, "echo": ALPHA_SAYS}).status == 502
    assert tenants.run(tenants.beta, OURS, {"die": True, "echo": BETA_SAYS}).status == 502
    tenants.look_everywhere(ours)
    # A key in a path is no path: what fails, what isn't there and what never comes to be are told without it.
    for inputs, status in (({"echo": BETA_SAYS}, 200), ({"bad": True, "echo": BETA_SAYS}, 400), ({"die": True}, 502)):
        assert tenants.bind(tenants.beta, OURS, inputs).status == status
    assert tenants.bind(tenants.beta, THEIRS, {"echo": 1}).status == 403
    for key in (tenants.admin, tenants.alpha, tenants.beta_user):
        assert node.fetch("GET", f"/binding/{key['key']}/nothing").status == 400
        assert node.fetch("PUT", f"/binding/{key['key']}/run", b"{}").status == 405
    # Names: an alias leads to no name, and one that is taken says not by whom.
    for method, target in (("DELETE", ALIAS), ("GET", ALIAS), ("GET", f"{ALIAS}/why"), ("POST", f"{ALIAS}/load")):
        assert tenants.ask(tenants.beta, method, f"/api/v1/models/{target}").status == 403
    assert tenants.deploy(tenants.beta, "@beta/thief", alias=ALIAS).status == 409
    assert tenants.run(tenants.beta, ALIAS, {"echo": 1}).status == 403
    for near in ("@canary-of-alpho/private", "an-alias-of-alpho"):
        assert tenants.run(tenants.beta, near, {"echo": 1}).status == 400
    for id in (job, ours):
        until(lambda id=id: ended(tenants, id), within_s=60, what="the jobs end")  # type: ignore[misc]
    metrics = tenants.ask(tenants.admin, "GET", "/metrics").body
    assert node.stop() == 0
    read = {"metrics": metrics, **{str(file): file.read_bytes() for file in [node.stderr, node.stdout, *logs(node)]}}
    secrets = [key["key"].rsplit("_", 1)[1] for key in (tenants.admin, tenants.alpha, tenants.beta, tenants.beta_user)]
    for where, content in read.items():
        for secret in (ALPHA_SAYS, BETA_SAYS, *secrets):
            assert secret.encode() not in content, where


def ended(tenants: Tenants, id: str) -> bool:
    said = json.loads(tenants.ask(tenants.admin, "GET", f"/api/v1/jobs/{id}").body)
    return said["status"] not in ("queued", "running")


def logs(node: Node) -> list[Path]:
    """But for what models themselves say: the probe tells of its requests."""
    return [file for file in (node.data_dir / "logs").rglob("*") if file.is_file() and file.parent.name != "models"]
