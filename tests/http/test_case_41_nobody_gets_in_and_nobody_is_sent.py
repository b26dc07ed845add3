"""Case 41: management is nobody's without a key, no page and no rebound name drives a node, and a node asks no private address for anybody."""

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fornada.core.keys import Role
from tests.harness.bundles import archive
from tests.harness.fixtures import StartNode
from tests.harness.node import Node, run_path
from tests.harness.waiting import until
from tests.http.edge_server.test_edge_access import MAY
from tests.http.test_a_model_reaches_the_hosts_it_names import NAME, deploy, started
from tests.http.test_case_40_an_accepted_job_is_done import done, job
from tests.http.test_keys import bearer, create

HERE = [
    "127.0.0.1",
    "127.0.0.2",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0x7f.0.0.1",
    "0177.0.0.1",
    "017700000001",
    "0.0.0.0",
    "0",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:127.0.0.1]",
    "[::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "localhost",
    "LOCALHOST.",
    "a.localhost",
    "127.0.0.1.",
    "%31%32%37.0.0.1",
    "127\u30020\u30020\u30021",
    "\uff11\uff12\uff17.0.0.1",
    "someone@127.0.0.1",
]
"""This machine, as C libraries, browsers and readers of URLs spell it."""
NEAR = [
    "169.254.169.254",
    "[::ffff:169.254.169.254]",
    "[fd00:ec2::254]",
    "[fe80::1]",
    "10.0.0.1",
    "192.168.0.1",
    "172.16.0.1",
    "100.64.0.1",
]
"""Its network, and a cloud's metadata."""
REFUSED = ["has no public address", "names no host and port", "Invalid IPv4 address", "Invalid IDNA hostname", "no address is known"]
SOURCES = [host for host in HERE + NEAR if not host.startswith("someone@")]


class Trap:
    """A server of this machine, at all of its addresses, which nobody is to reach; it writes down who did."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.sends_on_to = ""
        trap = self

        class Requests(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                trap.asked.append(self.path)
                self.send_response(302 if trap.sends_on_to else 200)
                if trap.sends_on_to:
                    self.send_header("location", trap.sends_on_to)
                self.send_header("content-length", "0")
                self.end_headers()

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("0.0.0.0", 0), Requests, bind_and_activate=False)
        self._server.socket.close()
        both = socket.has_dualstack_ipv6()
        family, address = (socket.AF_INET6, "::") if both else (socket.AF_INET, "0.0.0.0")
        self._server.socket = socket.create_server((address, 0), family=family, dualstack_ipv6=both)
        self.port = self._server.socket.getsockname()[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def at(self, host: str) -> str:
        return f"http://{host}:{self.port}/x"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def trap() -> Iterator[Trap]:
    made = Trap()
    yield made
    made.close()


@pytest.fixture
def allowed() -> Iterator[Trap]:
    """One that the operator allows at 127.0.0.1."""
    made = Trap()
    yield made
    made.close()


def path_of(pattern: str, key: Mapping[str, Any] | None = None) -> str:
    """`key` is who asks, where a binding has it in its path."""
    pattern = pattern.replace("{key}", key["key"] if key else "fnd_none")
    for name in ("account", "name:path", "id:path", "model:path", "id", "device"):
        pattern = pattern.replace(f"{{{name}}}", {"account": "local", "device": "cpu"}.get(name, "@test/a"))
    return pattern


def test_every_route_of_a_node_without_a_key_with_a_user_s_and_with_an_administrator_s(new_node: StartNode):
    node = new_node().start()
    node.deploy_probe("@test/a")
    admin, user = create(node, "local", "admin"), create(node, "local", "user")
    for row, needed in MAY.items():
        method, _, pattern = row.partition(" ")
        body = None if method == "GET" else b"{}"
        for key, role in ((None, Role.NOBODY), (user, Role.USER)):
            answer = node.fetch(method, path_of(pattern, key), body, headers=bearer(key) if key else {})
            if role >= needed:
                assert answer.status not in (401, 403), (row, answer.status)
            else:
                assert answer.status == (403 if key else 401), (row, role, answer.status)
        if method == "GET" and not pattern.endswith("/events"):
            assert node.fetch(method, path_of(pattern, admin), headers=bearer(admin)).status not in (401, 403), row
    models = node.fetch("GET", "/api/v1/models", headers=bearer(admin)).json()["models"]
    assert "@test/a" in [model["name"] for model in models], "nobody removed it"
    assert node.stop() == 0


def test_a_node_listens_on_loopback_unless_told_otherwise(node: Node):
    assert "--host" not in node.flags
    port = node.address[1]
    found = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = [fields[1] for fields in found if fields[3] == "0A" and fields[1].endswith(f":{port:04X}")]
    assert listening == [f"0100007F:{port:04X}"]
    assert not any(f":{port:04X} " in line for line in Path("/proc/net/tcp6").read_text().splitlines()[1:])


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "rebound.example"},
        {"host": "rebound.example:8250"},
        {"host": "127.0.0.1.rebound.example"},
        {"host": "169.254.169.254"},
        {"host": "[::ffff:10.0.0.1]"},
        {"host": "0.0.0.0:8250"},
        {"host": "2130706433"},
        {"origin": "https://page.example"},
        {"origin": "http://localhost.page.example"},
        {"origin": "null"},
    ],
    ids=lambda headers: " ".join(*headers.items()),
)
def test_a_rebound_name_and_a_page_from_elsewhere_get_no_route_of_a_node_without_keys(node: Node, headers: dict[str, str]):
    for row in MAY:
        method, _, pattern = row.partition(" ")
        answer = node.fetch(method, path_of(pattern), None if method == "GET" else b"{}", headers=headers)
        assert (answer.status, answer.code) == (403, 3105), (row, answer.status)
        assert "access-control-allow-origin" not in answer.headers


def config(*allowed: Trap) -> str:
    places = json.dumps([f"127.0.0.1:{each.port}" for each in allowed])
    return f"[node]\ndrain_s = 5\nkill_s = 2\nbackoff_s = 0.2\n[outbound]\nallow_private = {places}\n"


def test_a_webhook_leads_to_no_private_address_however_it_is_spelled(new_node: StartNode, trap: Trap, allowed: Trap):
    node = new_node(config=config(allowed)).start()
    node.deploy_probe("@test/a")

    def submit(url: str) -> object:
        return node.fetch("POST", run_path("@test/a") + "?queueRequest=true", payload={"requests": [{}], "options": {"webhook": url}})

    for host in HERE + NEAR:
        for port in (trap.port, 80):
            refused = submit(f"http://{host}:{port}/x")
            assert (refused.status, refused.code) == (400, 5006), host  # type: ignore[attr-defined]
    for url in ("file:///etc/passwd", f"gopher://127.0.0.1:{trap.port}/", f"//127.0.0.1:{trap.port}/", f"http:127.0.0.1:{trap.port}"):
        assert submit(url).status == 400, url  # type: ignore[attr-defined]
    allowed.sends_on_to = trap.at("127.0.0.1")
    id = submit(allowed.at("127.0.0.1")).result["request_id"]  # type: ignore[attr-defined]
    until(done(node, id), within_s=30, what="the job is done")
    until(lambda: len(allowed.asked) > 1, within_s=30, what="a redirect is a failure, and tried again")
    assert job(node, id)["status"] == "completed" and trap.asked == []
    assert node.stop() == 0


def test_an_artifact_comes_from_no_private_address_however_it_is_spelled(new_node: StartNode, trap: Trap, allowed: Trap):
    node = new_node(config=config(allowed)).start()

    def outcome(number: int, url: str) -> str:
        name = f"@test/w{number}"
        source = json.dumps([url])
        toml = f'name = "{name}"\n[[artifacts]]\npath = "w.bin"\nsha256 = "{number:064x}"\nsource = {source}\n'
        answer = node.put(name, archive({"model.toml": toml, "model.py": "def handle_request(request, context):\n    return {}\n"}))
        if answer.status == 200:
            answer = node.act(name, "load")
            assert answer.status == 503, (url, answer.body)
        else:
            assert answer.status == 400, (url, answer.body)
        return answer.body.decode()

    for number, host in enumerate(SOURCES):
        said = outcome(number, trap.at(host))
        assert any(words in said for words in REFUSED), (host, said)
    allowed.sends_on_to = trap.at("127.0.0.1")
    assert "no public address" in outcome(100, allowed.at("127.0.0.1"))
    assert allowed.asked and trap.asked == []
    assert node.stop() == 0


def test_a_model_reaches_no_private_address_however_it_is_spelled(new_node: StartNode, trap: Trap):
    node = started(new_node)
    reached = []
    for host in SOURCES:
        toml = f'name = "{NAME}"\n[resources]\nnetwork = {json.dumps([f"{host}:{trap.port}"])}\n'
        answer = node.put(NAME, archive({"model.toml": toml, "model.py": "def handle_request(request, context):\n    return {}\n"}))
        assert answer.status in (200, 400), (host, answer.body)
        if answer.status == 200 and host.isascii():  # the model's own client has no other letters
            reached.append(host)
    assert "2130706433" not in reached and "0x7f000001" not in reached, "numbers that only a C library reads are refused at once"
    deploy(node, *(f"{host}:{trap.port}" for host in reached))
    for host in reached:
        answer = node.ask(NAME, {"by": "tunnel", "url": trap.at(host)})
        # Nobody says that *.localhost has an address; where a resolver does, it is refused as any other name of this machine.
        assert "403" in answer["failed"] or (host == "a.localhost" and "502" in answer["failed"]), (host, answer)
    assert trap.asked == []
    assert node.stop() == 0
