"""Open mode serves this machine only: a page that somebody visits, or a name that somebody rebinds, gets nothing."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from fornada.keeper.levels import Level
from tests.bounds import bound
from tests.harness.client import Response
from tests.harness.fixtures import Probe, StartNode
from tests.harness.node import FORNADA, Node, node_environ, run_path
from tests.harness.walls import groups, lacking

FOREIGN_HOSTS = [
    "evil.example",
    "evil.example:8250",
    "10.0.0.1",
    "169.254.169.254",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "[::2]",
]
LOCAL_HOSTS = ["127.0.0.1", "localhost", "LOCALHOST", "[::1]", "127.0.0.2"]
FOREIGN_ORIGINS = [
    "https://evil.example",
    "http://evil.example:8250",
    "null",
    "file://",
    "http://127.0.0.1.evil.example",
    "http://10.0.0.1",
]
ROUTES = [
    ("POST", "/client/v4/accounts/local/ai/run/@test/none"),
    ("GET", "/client/v4/accounts/local/ai/models/search"),
    ("GET", "/api/v1/models"),
    ("PUT", "/api/v1/models/x"),
    ("DELETE", "/api/v1/models/x"),
    ("POST", "/api/v1/models/x/load"),
    ("GET", "/v1/models"),
    ("POST", "/v1/embeddings"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/audio/transcriptions"),
    ("GET", "/metrics"),
    ("GET", "/api/v1/nodes"),
    ("GET", "/docs"),
]


def refused(answer: Response) -> None:
    assert answer.status == 403, (answer.status, answer.body[:300])
    assert answer.code == 3105
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_a_host_that_is_not_local_is_refused_on_every_route(node: Node, host: str):
    for method, route in ROUTES:
        body = b"{}" if method in ("POST", "PUT") else None
        refused(node.fetch(method, route, body, headers={"host": host}))


@pytest.mark.parametrize("host", LOCAL_HOSTS)
def test_local_names_are_served_with_any_port(node: Node, host: str):
    port = node.address[1]
    for spelled in (host, f"{host}:{port}", f"{host}:1"):
        assert node.fetch("GET", "/api/v1/models", headers={"host": spelled}).status == 200, spelled


def test_no_host_and_two_hosts_are_bad_requests(node: Node):
    for head in (b"GET /api/v1/models HTTP/1.1\r\n\r\n", b"GET /api/v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n"):
        with node.connect() as connection:
            connection.send(head)
            assert connection.read_response().status in (400, 403)


def test_an_absolute_target_doesn_t_smuggle_a_foreign_host(node: Node):
    with node.connect() as connection:
        connection.send(b"GET http://evil.example/api/v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert connection.read_response().status in (400, 403, 404)


@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
def test_a_page_from_elsewhere_is_refused(node: Node, probe: Probe, origin: str):
    model = probe()
    before = node.metrics().total("fornada_model_loads_total", model=model)
    refused(node.fetch("POST", run_path(model), payload={"echo": 1}, headers={"origin": origin, "content-type": "text/plain"}))
    for method, route in ROUTES:
        refused(node.fetch(method, route, b"{}" if method in ("POST", "PUT") else None, headers={"origin": origin}))
    preflight = node.fetch("OPTIONS", run_path(model), headers={"origin": origin, "access-control-request-method": "POST"})
    assert preflight.status == 403 and "access-control-allow-origin" not in preflight.headers
    assert node.metrics().total("fornada_model_loads_total", model=model) == before, "nothing was loaded for it"


@pytest.mark.parametrize("origin", ["http://127.0.0.1:8250", "http://localhost:3000", "http://[::1]:8080"])
def test_a_local_page_is_served(node: Node, probe: Probe, origin: str):
    model = probe()
    assert node.fetch("POST", run_path(model), payload={"echo": 1}, headers={"origin": origin}).result["echo"] == 1


def test_origins_that_the_operator_added_are_served(new_node: StartNode):
    node = new_node(config='[node]\ndrain_s = 5\n[auth]\ncors = ["https://app.example"]\n').start()
    node.deploy_probe("@test/cors")
    path = run_path("@test/cors")
    answer = node.fetch("POST", path, payload={"echo": 1}, headers={"origin": "https://app.example"})
    assert answer.result["echo"] == 1
    assert answer.headers["access-control-allow-origin"] == "https://app.example"
    preflight = {
        "origin": "https://app.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization",
    }
    answer = node.fetch("OPTIONS", path, headers=preflight)
    assert answer.status in (200, 204) and answer.headers["access-control-allow-origin"] == "https://app.example"
    refused(node.fetch("POST", path, payload={"echo": 1}, headers={"origin": "https://app.example.evil.example"}))
    assert node.stop() == 0


def test_any_token_and_none_serve_and_each_account_is_a_tenant(node: Node, probe: Probe):
    model = probe()
    for headers in (
        {},
        {"authorization": "Bearer whatever"},
        {"x-auth-email": "a@b.example", "x-auth-key": "k"},
        {"authorization": "garbage"},
    ):
        assert node.run(model, {"echo": 1}, headers=headers).result["echo"] == 1
    other = node.fetch("POST", f"/client/v4/accounts/someone-else/ai/run/{model}", payload={"echo": 2})
    assert other.result["echo"] == 2, "in open mode a model is shared by the node"
    assert node.fetch("POST", f"/client/v4/accounts//ai/run/{model}", payload={"echo": 2}).status >= 400


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_another_address_than_loopback_is_refused_at_start_in_one_line(tmp_path, host: str):
    command = [FORNADA, "serve", "--host", host, "--port", "0", "--data-dir", tmp_path / "data"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=bound(15), env=node_environ(), check=False)
    assert done.returncode not in (0, None)
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and host in lines[0] and "key" in lines[0], done.stderr


def test_what_the_node_says_of_its_isolation_is_true(node: Node, probe: Probe):
    """Nothing was asked for, so it is the best that there is."""
    level = next(level for level in (Level.FULL, Level.NAMESPACES, Level.LANDLOCK) if not lacking(level))
    assert node.record["isolation"] == level
    assert f'"isolation":"{level}"' in json.dumps(node.fetch("GET", "/api/v1/nodes").json(), separators=(",", ":"))
    model = probe()
    node.load(model)
    (pid,) = node.pids(model)
    assert "Seccomp:\t2\n" in Path(f"/proc/{pid}/status").read_text()
    ours, its = (os.readlink(f"/proc/{whose}/ns/mnt") for whose in ("self", pid))
    assert (ours == its) == (level is Level.LANDLOCK)
    assert bool(groups(node.data_dir)) == (level is Level.FULL)
