"""Keys on a real node: made and ended by the command while it runs, shown by clients, found nowhere afterwards."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import bound
from tests.harness.bundles import write_probe
from tests.harness.client import Response
from tests.harness.fixtures import StartNode
from tests.harness.node import FORNADA, Node, node_environ


def fornada(*arguments: object, code: int = 0, **environ: str) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        [str(FORNADA), *map(str, arguments)], capture_output=True, text=True, timeout=bound(60), env=node_environ(environ), check=False
    )
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr + done.stdout
    return done


def create(node: Node, account: str, role: str, *more: object) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(
        fornada("keys", "create", "--account", account, "--role", role, "--data-dir", node.data_dir, "--json", *more).stdout
    )
    return made


def bearer(key: dict[str, Any]) -> dict[str, str]:
    return {"authorization": f"Bearer {key['key']}"}


def test_a_node_is_locked_by_its_first_key_and_follows_the_command_at_once(own_node: Node, tmp_path: Path):
    node = own_node
    own = node.deploy_probe("@keys/open")["name"]
    run = f"/client/v4/accounts/local/ai/run/{own}"
    assert node.fetch("POST", run, payload={"echo": 1}).status == 200
    with node.connect() as connection:

        def ask(key: dict[str, Any] | None, account: str = "team", model: str = "@keys/mine") -> Response:
            headers = {"content-type": "application/json", **(bearer(key) if key else {})}
            connection.send_request("POST", f"/client/v4/accounts/{account}/ai/run/{model}", b'{"echo": "tell nobody"}', headers)
            return connection.read_response()

        connection.send_request("POST", run, b"{}", {"content-type": "application/json"})
        assert connection.read_response().status == 200
        deployer = create(node, "team", "deployer")
        assert ask(None).status == 401, "on a connection that was open, too"
        folder = write_probe(tmp_path / "mine", "@keys/mine")
        environ = {"FORNADA_URL": node.url, "FORNADA_TOKEN": deployer["key"], "FORNADA_ACCOUNT": "team"}
        fornada("deploy", folder, "--wait", **environ)
        assert "hello" in fornada("run", "@keys/mine", "-i", "echo=hello", **environ).stdout
        user, other = create(node, "team", "user"), create(node, "rivals", "deployer")
        assert ask(user).status == 200
        refused = ask(other, account="rivals")
        assert (refused.status, refused.code) == (403, 5018)
        assert "@keys/mine" not in node.fetch("GET", "/api/v1/models", headers=bearer(other)).body.decode()
        fornada("keys", "revoke", user["id"], "--data-dir", node.data_dir)
        assert ask(user).status == 401
        listed = json.loads(fornada("keys", "list", "--data-dir", node.data_dir, "--json").stdout)["keys"]
        assert [(key["id"], key["role"], key["revoked"] is None) for key in listed] == [
            (deployer["id"], "deployer", True),
            (user["id"], "user", False),
            (other["id"], "deployer", True),
        ]
        assert node.fetch("DELETE", "/api/v1/models/@keys/mine", headers=bearer(other)).status == 403
        assert node.fetch("DELETE", "/api/v1/models/@keys/mine").status == 401, "and in no audit: anybody could fill it"
        looked = json.loads(fornada("doctor", "--json", FORNADA_URL=node.url).stdout)["findings"]
        (seen,) = [finding for finding in looked if finding["subject"] == "node"]
        assert seen["level"] == "ok" and "FORNADA_TOKEN" in seen["advice"] and "keys create" not in str(seen), seen
        wrong = fornada("ps", code=1, FORNADA_URL=node.url)
        assert "FORNADA_TOKEN" in wrong.stderr and len(wrong.stderr.splitlines()) == 1
    lines = [json.loads(line) for line in (node.data_dir / "logs/audit.log").read_text().splitlines()]
    assert all(line["event"] == "audit" and line["time"] for line in lines)
    assert [(line["action"], line.get("account"), line.get("key"), line.get("status")) for line in lines] == [
        ("deployModel", "", "", 200),
        ("createKey", "team", deployer["id"], None),
        ("deployModel", "team", deployer["id"], 200),
        ("loadModel", "team", deployer["id"], 200),
        ("createKey", "team", user["id"], None),
        ("createKey", "rivals", other["id"], None),
        ("revokeKey", "team", user["id"], None),
        ("removeModel", "rivals", other["id"], 403),
    ]
    assert lines[1]["uid"] == os.getuid() and lines[2]["path"] == "/api/v1/models/@keys/mine"
    assert node.stop() == 0
    for file in (*node.data_dir.rglob("*"), node.stderr, node.stdout):
        if file.is_file() and "environments" not in file.parts:
            content = file.read_bytes()
            for key in (deployer, user, other):
                assert key["key"].rsplit("_", 1)[1].encode() not in content, file
            if file.parent.name != "models":  # what a model itself says; this one tells of its requests
                assert b"tell nobody" not in content, file


def test_keys_outlive_the_control_plane_and_the_node(own_node: Node):
    admin = create(own_node, "ops", "admin")
    before = own_node.control_pid
    os.kill(before, signal.SIGKILL)
    own_node.wait_next_control_plane(after_pid=before)
    assert own_node.fetch("GET", "/metrics").status == 401
    assert own_node.fetch("GET", "/metrics", headers=bearer(admin)).status == 200
    own_node.stop()
    own_node.start()
    assert own_node.fetch("GET", "/metrics").status == 401
    assert "forgot 1 key" in fornada("keys", "forget", "--yes", "--data-dir", own_node.data_dir).stdout
    assert own_node.fetch("GET", "/metrics").status == 200


def test_a_node_that_others_reach_needs_a_key_first_and_the_command_finds_it_then(new_node: StartNode):
    node = new_node(flags=["--host", "0.0.0.0"])
    node.spawn()
    assert node.wait() == 2
    (line,) = node.stderr.read_text().splitlines()
    assert "--host 0.0.0.0 is refused" in line and f"fornada keys create --data-dir {node.data_dir}" in line
    key = create(node, "local", "admin")
    node.start()
    assert node.fetch("GET", "/api/v1/models", headers={"host": "models.example"}).status == 401
    assert node.fetch("GET", "/api/v1/models", headers={**bearer(key), "host": "models.example"}).status == 200
    assert node.url in fornada("nodes", FORNADA_TOKEN=key["key"], FORNADA_DATA_DIR=str(node.data_dir)).stdout
    fornada("keys", "forget", "--yes", "--data-dir", node.data_dir)
    assert node.fetch("GET", "/api/v1/models").status == 401, "such a node is never open"
    assert node.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["create", "--account", "a", "--role", "king"], "--role"),
        (["create", "--account", "", "--role", "user"], "an account is"),
        (["create", "--role", "user"], "--account"),
        (["create", "--account", "..", "--role", "user"], "can't be called"),
        (["create", "--account", "a", "--role", "user", "--models", ""], "--models names no model"),
        (["create", "--account", "a", "--role", "user", "--models", " , "], "--models names no model"),
        (["create", "--account", "a", "--role", "user", "--models", "@a/b:stable"], "colon"),
        (["create", "--account", "a", "--role", "user", "--models", "@a/b\n@c/d"], "control characters"),
    ],
)
def test_a_key_that_can_not_be_is_refused_in_one_line(tmp_path: Path, arguments: list[str], said: str):
    done = fornada("keys", *arguments, "--data-dir", tmp_path / "data", code=2)
    assert said in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "data").exists()


def test_what_is_not_there_is_said_in_one_line(tmp_path: Path):
    for words in (["list"], ["revoke", "0" * 16], ["forget", "--yes"]):
        done = fornada("keys", *words, "--data-dir", tmp_path / "none", code=1)
        assert "no node has used it yet" in done.stderr and len(done.stderr.splitlines()) == 1
    create_here = ["create", "--account", "a", "--role", "user", "--data-dir", tmp_path / "data"]
    assert fornada("keys", *create_here).stdout.startswith("fnd_")
    done = fornada("keys", "revoke", "0" * 16, "--data-dir", tmp_path / "data", code=1)
    assert "there is no key" in done.stderr


def test_a_key_is_revoked_by_whatever_of_it_is_at_hand(tmp_path: Path):
    data = ["--data-dir", str(tmp_path / "data")]
    for form in ("{id}", "fnd_{id}", "fnd_{id}_", "{key}", " {key}\n"):
        made = json.loads(fornada("keys", "create", "--account", "a", "--role", "user", "--json", *data).stdout)
        assert f"key {made['id']} of account a is revoked" in fornada("keys", "revoke", form.format(**made), *data).stdout
    secret = "0" * 64
    assert secret not in fornada("keys", "revoke", f"fnd_{'0' * 16}_{secret}", *data, code=1).stderr
