"""A real receiver is told of a job's end by a node; one that is down, or where nobody may go, holds nothing up."""

import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.harness.fixtures import StartNode
from tests.harness.node import Node, run_path
from tests.harness.waiting import until
from tests.http.test_case_40_an_accepted_job_is_done import done, job


class Receiver:
    """A server that writes down what it gets and answers what it is told."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[tuple[int, dict[str, str]]] = []
        receiver = self

        class Requests(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
                status, headers = receiver.answers.pop(0) if receiver.answers else (204, {})
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Requests)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def start(new_node: StartNode, *ports: int, **more: str) -> Node:
    places = ", ".join(f'"127.0.0.1:{port}"' for port in ports)
    secret = f'[jobs]\nwebhook_secret = "{more["secret"]}"\n' if more else ""
    node = new_node(config=f"[outbound]\nallow_private = [{places}]\n{secret}").start()
    node.deploy_probe("@test/a")
    return node


def submit(node: Node, url: str) -> Any:
    body = {"requests": [{"echo": 1}], "options": {"webhook": url}}
    return node.fetch("POST", run_path("@test/a") + "?queueRequest=true", payload=body)


def test_the_end_of_a_job_is_told_and_signed(new_node: StartNode, receiver: Receiver):
    node = start(new_node, receiver.port, secret="between us")
    receiver.answers = [(500, {}), (302, {"location": receiver.url + "/elsewhere"})]
    id = submit(node, receiver.url).result["request_id"]
    until(lambda: len(receiver.got) == 3, within_s=60, what="the receiver is told, after a failure and a redirect that leads nowhere")
    assert job(node, id)["status"] == "completed"
    for headers, body in receiver.got:
        said = json.loads(body)
        assert (said["id"], said["status"], said["counts"]) == (id, "completed", {"completed": 1})
        fields = dict(part.split("=", 1) for part in headers["x-fornada-signature"].split(","))
        assert fields["v1"] == hmac.new(b"between us", fields["t"].encode() + b"." + body, hashlib.sha256).hexdigest()
    assert node.stop() == 0
    assert not list(node.data_dir.glob("webhook.secret"))
    assert "between us" not in (node.data_dir / "logs/node.log").read_text()


def test_a_secret_is_made_once_and_is_the_nodes_alone(new_node: StartNode, receiver: Receiver):
    node = start(new_node, receiver.port)
    file = node.data_dir / "webhook.secret"
    secret = file.read_bytes().strip()
    assert len(secret) == 64 and file.stat().st_mode & 0o077 == 0
    id = submit(node, receiver.url).result["request_id"]
    until(lambda: receiver.got, within_s=60, what="the receiver is told")
    headers, body = receiver.got[0]
    fields = dict(part.split("=", 1) for part in headers["x-fornada-signature"].split(","))
    assert fields["v1"] == hmac.new(secret, fields["t"].encode() + b"." + body, hashlib.sha256).hexdigest()
    assert json.loads(body)["id"] == id
    node.stop()
    node.start()
    assert file.read_bytes().strip() == secret
    assert node.stop() == 0


def test_a_receiver_that_is_down_and_one_where_nobody_may_go_hold_nothing_up(new_node: StartNode, receiver: Receiver):
    node = start(new_node, 1)
    id = submit(node, "http://127.0.0.1:1/").result["request_id"]
    until(done(node, id), within_s=30, what="the job is done")
    assert job(node, id)["status"] == "completed"
    for url in (receiver.url, "http://169.254.169.254/", "http://[::1]/", f"http://2130706433:{receiver.port}/", "file:///etc/passwd"):
        refused = submit(node, url)
        assert (refused.status, refused.code) == (400, 5006), url
    # A name is looked up only when it is called: this machine's own leads to none that is permitted.
    named = submit(node, f"http://{socket.gethostname()}:{receiver.port}/").result["request_id"]
    log = node.data_dir / "logs/node.log"
    until(lambda: any(named in line and "given up" in line for line in log.read_text().splitlines()), within_s=60, what="it is given up")
    assert job(node, named)["status"] == "completed" and receiver.got == []
    assert node.stop() == 0
