"""A model whose model.toml names hosts reaches these through the node, and a node's own death costs it no more than its connections."""

import http.server
import json
import os
import threading
import time
from collections.abc import Iterator

import pytest

from tests.bounds import bound, count
from tests.harness.bundles import archive
from tests.harness.fixtures import StartNode
from tests.harness.node import Node
from tests.harness.processes import kill
from tests.harness.waiting import until

NAME = "@test/traveller"
CODE = """
import http.client
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import fornada_sdk

PROXY_AT_IMPORT = os.environ.get("HTTPS_PROXY", "")
FETCH = "import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())"


class Model(fornada_sdk.Model):
    def load(self, context):
        self.kept = None

    def run(self, request, context):
        inputs = request.body.json
        if inputs.get("variables"):
            return {"variables": {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}, "pid": os.getpid()}
        try:
            return {"said": getattr(self, inputs["by"])(inputs["url"]), "pid": os.getpid()}
        except (OSError, http.client.HTTPException) as error:
            body = error.read().decode() if isinstance(error, urllib.error.HTTPError) else ""
            return {"failed": f"{type(error).__name__}: {error}", "body": body, "pid": os.getpid()}

    def address(self, url):
        with urllib.request.urlopen(url, timeout=20) as answer:
            return answer.read().decode()

    def tunnel(self, url):
        proxy = urlsplit(PROXY_AT_IMPORT)
        client = http.client.HTTPConnection(proxy.hostname, proxy.port, timeout=20)
        client.set_tunnel(urlsplit(url).hostname, urlsplit(url).port)
        client.request("GET", urlsplit(url).path)
        said = client.getresponse().read().decode()
        client.close()
        return said

    def keep(self, url):
        self.kept = http.client.HTTPConnection(urlsplit(PROXY_AT_IMPORT).hostname, urlsplit(PROXY_AT_IMPORT).port, timeout=20)
        self.kept.set_tunnel(urlsplit(url).hostname, urlsplit(url).port)
        self.kept.request("GET", urlsplit(url).path)
        return self.kept.getresponse().read().decode()

    def again(self, url):
        self.kept.auto_open = 0
        self.kept.request("GET", urlsplit(url).path)
        return self.kept.getresponse().read().decode()

    def direct(self, url):
        with socket.create_connection((urlsplit(url).hostname, urlsplit(url).port), timeout=20):
            return "connected"

    def datagram(self, url):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"x", (urlsplit(url).hostname, urlsplit(url).port))
            return "sent"

    def child(self, url):
        done = subprocess.run([sys.executable, "-c", FETCH, url], capture_output=True, text=True, timeout=30)
        return done.stdout or done.stderr

    def forked(self, url):
        read_end, write_end = os.pipe()
        if os.fork() == 0:
            os.write(write_end, self.tunnel(url).encode())
            os._exit(0)
        os.close(write_end)
        with open(read_end) as said:
            text = said.read()
        os.wait()
        return text
"""


class Answering(http.server.BaseHTTPRequestHandler):
    """Says by which path it was asked."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = f"asked for {self.path}".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[http.server.ThreadingHTTPServer]:
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    made.daemon_threads = True
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join(bound(5))


def pair_of(server: http.server.ThreadingHTTPServer) -> str:
    return f"127.0.0.1:{server.server_address[1]}"


def deploy(node: Node, *network: str) -> None:
    toml = f'name = "{NAME}"\n[resources]\nnetwork = {json.dumps(list(network))}\n'
    node.deploy(NAME, archive({"model.toml": toml, "model.py": CODE}))


def outbound_lines(node: Node) -> list[dict[str, object]]:
    lines = map(json.loads, (node.data_dir / "logs/node.log").read_text().splitlines())
    return [line for line in lines if line["event"] == "outbound.ended"]


def started(new_node: StartNode, *allowed: str, level: str = "auto", zygotes: bool = True) -> Node:
    outbound = f"[outbound]\nallow_private = {json.dumps(list(allowed))}\n"
    # A cache of its own: a build that is confined writes nowhere else than into the node's own folder.
    config = f'[node]\ndrain_s = 5\nkill_s = 2\nzygotes = {str(zygotes).lower()}\n[provision]\ncache_dir = ""\n{outbound}'
    return new_node(config=config, flags=["--isolation", level]).start()


@pytest.mark.parametrize("level", ["auto", "none"])
def test_named_hosts_are_reached_by_every_way_that_libraries_have_and_no_other_host_is(
    new_node: StartNode, server: http.server.ThreadingHTTPServer, level: str
):
    pair = pair_of(server)
    node = started(new_node, pair, "127.0.0.1:9", level=level)
    deploy(node, pair, "127.0.0.1:9")
    variables = node.ask(NAME, {"variables": True})["variables"]
    assert set(variables) == {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"}
    assert variables["NO_PROXY"] == "localhost,::1"  # the version names 127.0.0.1
    for by in ("address", "tunnel", "child", "forked"):
        assert node.ask(NAME, {"by": by, "url": f"http://{pair}/{by}"})["said"] == f"asked for /{by}"
    other = node.ask(NAME, {"by": "address", "url": "http://other.example/"})
    assert "403" in other["failed"] and "model.toml" in other["body"] and "other.example:80 is refused" in other["body"]
    other = node.ask(NAME, {"by": "address", "url": "https://other.example/"})
    assert "403" in other["failed"] and "other.example:443 is refused" in other["failed"]
    closed = node.ask(NAME, {"by": "tunnel", "url": "http://127.0.0.1:9/"})
    assert "502" in closed["failed"] and "Connection refused" in closed["failed"]
    until(lambda: len(outbound_lines(node)) >= 7, within_s=5, what="the ends of seven connections in the log")
    ends = [(line["host"], line["end"]) for line in outbound_lines(node)]
    assert sorted(ends) == sorted(
        [(pair, "closed")] * 4 + [("other.example:80", "refused"), ("other.example:443", "refused"), ("127.0.0.1:9", "failed")]
    )
    metrics = node.metrics()
    assert metrics.total("fornada_outbound_connections_total", model=NAME, outcome="closed") == 4
    assert metrics.total("fornada_outbound_bytes_total", model=NAME, direction="received") > 0
    assert node.stop() == 0


def descriptors(node: Node) -> int:
    return len(os.listdir(f"/proc/{node.keeper_pid}/fd"))


def settled(node: Node) -> int:
    """How many descriptors the keeper holds, if they are the same ones for a while; 0 if not."""
    before = os.listdir(f"/proc/{node.keeper_pid}/fd")
    time.sleep(0.3)
    return len(before) if os.listdir(f"/proc/{node.keeper_pid}/fd") == before else 0


def test_the_keeper_gives_back_what_it_held_for_a_way_out(new_node: StartNode, server: http.server.ThreadingHTTPServer):
    pair = pair_of(server)
    node = started(new_node, pair, zygotes=False)  # one would come, and with it descriptors
    deploy(node, pair)
    # Not before the first load: what the deploy's build held may be closed before or after that moment.
    node.act(NAME, "load")
    node.act(NAME, "unload")
    rested = until(lambda: settled(node), within_s=10, what="the keeper's descriptors don't change any more")
    rounds = count(3, long=30)
    for _ in range(rounds):
        assert node.ask(NAME, {"by": "keep", "url": f"http://{pair}/"})["said"] == "asked for /"
        assert descriptors(node) > rested
        node.act(NAME, "unload")
        until(lambda: descriptors(node) == rested, within_s=5, what=f"the keeper's {rested} descriptors as before")
    until(lambda: len(outbound_lines(node)) == rounds, within_s=5, what="a line for the end of each connection")
    ends = {line["end"] for line in outbound_lines(node)}
    assert ends <= {"closed", "stopped"}  # the process went, and its end of it with it, or the node was quicker
    assert node.stop() == 0


def test_what_goes_around_the_proxy_reaches_nothing_where_models_have_a_network_of_their_own(
    new_node: StartNode, server: http.server.ThreadingHTTPServer
):
    pair = pair_of(server)
    node = started(new_node, pair)
    if node.record["isolation"] not in ("full", "namespaces"):
        pytest.skip(f"this machine gives level {node.record['isolation']}")
    deploy(node, pair)
    assert node.ask(NAME, {"by": "tunnel", "url": f"http://{pair}/"})["said"] == "asked for /"
    assert "Connection refused" in node.ask(NAME, {"by": "direct", "url": f"http://{pair}/"})["failed"]
    assert "unreachable" in node.ask(NAME, {"by": "direct", "url": "http://192.0.2.1:80/"})["failed"]
    assert "PermissionError" in node.ask(NAME, {"by": "datagram", "url": f"http://{pair}/"})["failed"]
    assert node.stop() == 0


def test_what_the_operator_has_not_allowed_stays_private(new_node: StartNode, server: http.server.ThreadingHTTPServer):
    pair = pair_of(server)
    node = started(new_node)
    deploy(node, pair)
    answer = node.ask(NAME, {"by": "tunnel", "url": f"http://{pair}/"})
    assert "403" in answer["failed"] and f"{pair} is at an address that isn't public" in answer["failed"]
    assert node.stop() == 0


def test_a_model_that_names_no_host_is_told_of_no_proxy(new_node: StartNode):
    node = started(new_node)
    deploy(node)
    assert node.ask(NAME, {"variables": True})["variables"] == {}
    assert node.stop() == 0


def test_the_death_of_a_control_plane_costs_connections_and_not_the_way_out(new_node: StartNode, server: http.server.ThreadingHTTPServer):
    pair = pair_of(server)
    node = started(new_node, pair)
    deploy(node, pair)
    first = node.ask(NAME, {"by": "keep", "url": f"http://{pair}/one"})
    assert first["said"] == "asked for /one"
    assert node.ask(NAME, {"by": "again", "url": f"http://{pair}/two"})["said"] == "asked for /two"
    pid = node.control_pid
    kill(pid)
    node.wait_next_control_plane(after_pid=pid)
    broken = node.ask(NAME, {"by": "again", "url": f"http://{pair}/three"})
    assert "failed" in broken and broken["pid"] == first["pid"]
    later = node.ask(NAME, {"by": "tunnel", "url": f"http://{pair}/four"})
    assert later["said"] == "asked for /four" and later["pid"] == first["pid"]
    assert node.stop() == 0
