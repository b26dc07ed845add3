"""A node that speaks TLS, from files that are replaced while it serves."""

import http.client
import json
import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509

from tests.bounds import bound
from tests.docs.pages import REPOSITORY
from tests.harness.bundles import write_probe
from tests.harness.fixtures import StartNode
from tests.harness.node import FORNADA, Node
from tests.harness.processes import kill
from tests.harness.waiting import until
from tests.harness.websocket import WebSocket
from tests.http.test_upgrade import checkout, upgrade

CONFIG = """
[server]
tls_cert = "{folder}/cert.pem"
tls_key = "{folder}/key.pem"
"""
RUN = "/client/v4/accounts/local/ai/run/@test/a"


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def issue(authority: trustme.CA, folder: Path, *, cert: bool = True, key: bool = True) -> int:
    """A new certificate in the node's files; its serial number."""
    made = authority.issue_cert("localhost", "127.0.0.1")
    if key:
        made.private_key_pem.write_to_path(str(folder / "key.pem"))
    if cert:
        made.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    return x509.load_pem_x509_certificate(made.cert_chain_pems[0].bytes()).serial_number


def trusting(authority: trustme.CA, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if version is not None:
        context.set_ciphers("DEFAULT:@SECLEVEL=0")  # else this side would refuse
        context.minimum_version = context.maximum_version = version
    return context


def connect(node: Node, context: ssl.SSLContext) -> http.client.HTTPSConnection:
    connection = http.client.HTTPSConnection("localhost", node.address[1], context=context, timeout=bound(10))
    connection.connect()
    return connection


def ask(connection: http.client.HTTPSConnection, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    connection.request(method, path, body=None if body is None else json.dumps(body), headers={"content-type": "application/json"})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read() or b"null")


def serial(node: Node, context: ssl.SSLContext) -> int:
    """Of the certificate that a new connection gets to see."""
    connection = connect(node, context)
    try:
        seen = connection.sock.getpeercert(binary_form=True)
        assert isinstance(seen, bytes)
        return x509.load_der_x509_certificate(seen).serial_number
    finally:
        connection.close()


def serve(new_node: StartNode, folder: Path, context: ssl.SSLContext) -> Node:
    node = new_node(config=CONFIG.format(folder=folder))
    node.spawn()
    until(ready(node, context), within_s=60, what="the node is ready")
    return node


def ready(node: Node, context: ssl.SSLContext) -> Callable[[], bool]:
    def look() -> bool:
        try:
            connection = connect(node, context)
            try:
                return ask(connection, "GET", "/health/ready")[0] == 200
            finally:
                connection.close()
        except (OSError, AssertionError, http.client.HTTPException):
            return False

    return look


def command(node: Node, *words: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    known = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **environ}
    return subprocess.run([str(FORNADA), *words], capture_output=True, text=True, env=known, timeout=bound(60), check=False)


@pytest.mark.timeout(bound(120))
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_it_answers_over_tls_alone_and_the_commands_know_its_certificate(new_node: StartNode, authority: trustme.CA, tmp_path: Path):
    issue(authority, tmp_path)
    context = trusting(authority)
    node = serve(new_node, tmp_path, context)
    assert node.url.startswith("https://127.0.0.1:")
    connection = connect(node, context)
    assert connection.sock.version() in ("TLSv1.2", "TLSv1.3")
    large = "x" * 3_000_000
    status, answer = ask(
        connection, "POST", "/v1/chat/completions", {"model": "@test/none", "messages": [{"role": "user", "content": large}]}
    )
    assert status == 404, answer
    assert ask(connection, "GET", "/v1/models")[0] == 200, "the connection goes on"
    connection.close()

    with socket.create_connection(node.address, timeout=bound(10)) as plain:
        plain.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert not plain.recv(100).startswith(b"HTTP/1.1"), "nothing is said in the clear"
    for old in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
        with pytest.raises(OSError):
            connect(node, trusting(authority, old))

    written = {"FORNADA_DATA_DIR": str(node.data_dir)}
    listed = command(node, "models", "--json", **written)
    assert listed.returncode == 0 and json.loads(listed.stdout) is not None, listed.stderr
    looked = command(node, "doctor", "--json", **written)
    (certificate,) = [each for each in json.loads(looked.stdout)["findings"] if each["subject"] == "certificate"]
    assert certificate["level"] == "ok" and "more days" in certificate["seen"], certificate
    stranger = command(node, "models", FORNADA_URL=f"https://localhost:{node.address[1]}")
    assert stranger.returncode == 1 and "isn't trusted here" in stranger.stderr and "SSL_CERT_FILE" in stranger.stderr, stranger.stderr
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    told = command(node, "models", FORNADA_URL=f"https://localhost:{node.address[1]}", SSL_CERT_FILE=str(tmp_path / "authority.pem"))
    assert told.returncode == 0, told.stderr
    assert node.stop() == 0


@pytest.mark.timeout(bound(120))
def test_a_model_is_deployed_and_streams_over_it(new_node: StartNode, authority: trustme.CA, tmp_path: Path):
    issue(authority, tmp_path)
    context = trusting(authority)
    node = serve(new_node, tmp_path, context)
    folder = write_probe(tmp_path / "probe", "@test/a")
    deployed = command(node, "deploy", str(folder), "--wait", FORNADA_DATA_DIR=str(node.data_dir))
    assert deployed.returncode == 0, deployed.stderr
    connection = connect(node, context)
    assert ask(connection, "POST", RUN, {"big_out_mb": 8})[1]["result"]["big"] == "x" * 8_000_000
    connection.request("POST", RUN, body=json.dumps({"steps": 3, "stream": True}), headers={"content-type": "application/json"})
    lines = [line for line in connection.getresponse().read().decode().splitlines() if line]
    assert [json.loads(line.removeprefix("data: "))["step"] for line in lines[:-1]] == [0, 1, 2] and lines[-1] == "data: [DONE]"
    connection.close()

    flux = command(node, "deploy", str(REPOSITORY / "examples/contract/flux"), "--wait", FORNADA_DATA_DIR=str(node.data_dir))
    assert flux.returncode == 0, flux.stderr
    with WebSocket(node.address, RUN.replace("@test/a", "@contract/flux"), {"Host": "localhost"}, context=context) as socket:
        for _ in range(3):
            socket.send(bytes(100_000))
            assert json.loads(socket.receive())["event"] == "Update"
        socket.send('{"type": "CloseStream"}')
        assert socket.end().code == 1000


@pytest.mark.timeout(bound(120))
def test_files_that_are_replaced_are_taken_and_unusable_ones_leave_what_was_there(
    new_node: StartNode, authority: trustme.CA, tmp_path: Path
):
    first = issue(authority, tmp_path)
    context = trusting(authority)
    node = serve(new_node, tmp_path, context)
    assert serial(node, context) == first
    kept = connect(node, context)
    issue(authority, tmp_path, key=False)
    until(lambda: "tls.unusable" in node.stderr.read_text(), within_s=20, what="a word about a pair that is none")
    assert serial(node, context) == first
    (tmp_path / "cert.pem").write_text("no certificate")
    second = issue(authority, tmp_path)
    until(lambda: serial(node, context) == second, within_s=20, what="the new certificate")
    assert ask(kept, "GET", "/health/live")[0] == 200, "connections of before go on"
    kept.close()


@pytest.mark.timeout(bound(180))
def test_after_kill_9_callers_are_told_at_once_and_the_next_one_serves_with_the_same_files(
    new_node: StartNode, authority: trustme.CA, tmp_path: Path
):
    issue(authority, tmp_path)
    context = trusting(authority)
    node = serve(new_node, tmp_path, context)
    folder = write_probe(tmp_path / "probe", "@test/a")
    deployed = command(node, "deploy", str(folder), "--wait", FORNADA_DATA_DIR=str(node.data_dir))
    assert deployed.returncode == 0, deployed.stderr
    connection = connect(node, context)
    runner = ask(connection, "POST", RUN, {"echo": 1})[1]["result"]["pid"]
    connection.close()
    for victim in ("control plane", "keeper"):
        idle = connect(node, context)
        assert ask(idle, "GET", "/health/live")[0] == 200
        waiting = connect(node, context)
        waiting.request("POST", RUN, body=json.dumps({"sleep_s": 30}), headers={"content-type": "application/json"})
        until(lambda: node_of(node)["in_flight"] == 1, within_s=20, what="it runs")
        before = node.control_pid
        kill(before if victim == "control plane" else node.keeper_pid)
        for told in (waiting, idle):
            with pytest.raises((OSError, http.client.HTTPException)):
                told.getresponse() if told is waiting else ask(told, "GET", "/health/live")
        if victim == "control plane":
            until(partial(succeeded, node, before, context), within_s=20, what="a successor")
            again = connect(node, context)
            assert ask(again, "POST", RUN, {"echo": 1})[1]["result"]["pid"] == runner, "models have lived on"
            again.close()
        else:
            assert node.wait() != 0, "all of it has ended with its keeper"
            node.spawn()
            until(ready(node, context), within_s=60, what="the node is there again")
            again = connect(node, context)
            assert ask(again, "POST", RUN, {"echo": 1})[1]["result"]["load_count"] == 2
            again.close()
        for closed in (idle, waiting):
            closed.close()
    assert node.stop() == 0


def succeeded(node: Node, before: int, context: ssl.SSLContext) -> bool:
    return node.control_pid != before and ready(node, context)()


def node_of(node: Node) -> Any:
    """The model's one instance, as the command shows it."""
    shown = command(node, "ps", "--json", FORNADA_DATA_DIR=str(node.data_dir))
    (instance,) = json.loads(shown.stdout)["instances"]
    return instance


class Persistent:
    """A caller that keeps its connection, and opens another one where that has ended before an answer began."""

    def __init__(self, node: Node, context: ssl.SSLContext) -> None:
        self.over = threading.Event()
        self.answers = 0
        self.again = 0
        self.trouble: list[str] = []
        self._node, self._context = node, context
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        self.over.set()
        self._thread.join(bound(30))

    def _run(self) -> None:
        connection, used = connect(self._node, self._context), 0
        while not self.over.is_set():
            try:
                connection.request("POST", RUN, body=b'{"echo": 1}', headers={"content-type": "application/json"})
                answer = connection.getresponse()
            except (OSError, http.client.RemoteDisconnected) as error:
                if not used:
                    self.trouble.append(f"a new connection has ended: {error!r}")
                    break
                self.again += 1
                connection.close()
                connection, used = connect(self._node, self._context), 0
                continue
            try:
                if answer.status != 200 or json.loads(answer.read())["result"]["echo"] != 1:
                    self.trouble.append(f"answered {answer.status}")
            except (OSError, http.client.HTTPException) as error:
                self.trouble.append(f"an answer has broken off: {error!r}")
                break
            self.answers += 1
            used += 1
            if answer.will_close:
                self.again += 1
                connection.close()
                connection, used = connect(self._node, self._context), 0
        connection.close()


@pytest.mark.timeout(bound(180))
def test_an_upgrade_ends_each_connection_between_two_requests(new_node: StartNode, authority: trustme.CA, tmp_path: Path):
    issue(authority, tmp_path)
    context = trusting(authority)
    node = serve(new_node, tmp_path, context)
    folder = write_probe(tmp_path / "probe", "@test/a", serving={"concurrency": 4})
    deployed = command(node, "deploy", str(folder), "--wait", FORNADA_DATA_DIR=str(node.data_dir))
    assert deployed.returncode == 0, deployed.stderr
    callers = [Persistent(node, context) for _ in range(4)]
    try:
        until(lambda: all(caller.answers > 20 for caller in callers), within_s=30, what="callers at work")
        before = node.control_pid
        done = upgrade(node, checkout(tmp_path, "9.1.0"))
        assert done.returncode == 0, done.stderr + node.said()
        assert node.control_pid != before
        until(lambda: all(caller.again for caller in callers), within_s=30, what="all have been sent on")
        reached = [caller.answers + 20 for caller in callers]
        until(
            lambda: all(caller.answers > wanted or caller.trouble for caller, wanted in zip(callers, reached, strict=True)),
            within_s=30, what="callers go on",
        )  # fmt: skip
    finally:
        for caller in callers:
            caller.end()
    assert not any(caller.trouble for caller in callers), [caller.trouble for caller in callers]
    assert [caller.again for caller in callers] == [1] * 4
    assert node.stop() == 0


@pytest.mark.timeout(bound(60))
@pytest.mark.parametrize(
    ("cert", "key", "said"),
    [("none.pem", "key.pem", "No such file"), ("cert.pem", "other.pem", "can't be used"), ("", "key.pem", "tls_key is of no use")],
)
def test_a_node_does_not_start_with_files_that_can_not_serve(authority: trustme.CA, tmp_path: Path, cert: str, key: str, said: str):
    issue(authority, tmp_path)
    authority.issue_cert("localhost").private_key_pem.write_to_path(str(tmp_path / "other.pem"))
    config = tmp_path / "fornada.toml"
    named = f'tls_cert = "{tmp_path / cert}"\n' if cert else ""
    config.write_text(f'[server]\n{named}tls_key = "{tmp_path / key}"\n')
    done = subprocess.run(
        [str(FORNADA), "serve", "--port", "0", "--data-dir", str(tmp_path / "data"), "--config", str(config)],
        capture_output=True, text=True, timeout=bound(30), check=False,
    )  # fmt: skip
    assert done.returncode == 2 and said in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr
