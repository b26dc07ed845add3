"""The command line against a real node: what it prints can be read by people and by programs, and its exit codes mean something."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.bounds import bound
from tests.harness.bundles import archive, write_probe
from tests.harness.fixtures import Probe
from tests.harness.node import FORNADA, Node, node_environ
from tests.harness.waiting import until

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def fornada(node: Node) -> Run:
    """`fornada` as a client of the shared node; the exit code must be `code`."""

    def run(*arguments: object, code: int = 0, stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
        environ = node_environ({"FORNADA_URL": node.url, "NO_COLOR": "1"})
        command = [str(FORNADA), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=bound(60), env=environ, input=stdin, check=False)
        assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr + done.stdout
        return done

    return run


@pytest.fixture
def deployed(node: Node, fornada: Run, fresh_name, tmp_path: Path) -> Iterator[str]:
    name = str(fresh_name())
    folder = write_probe(tmp_path / "probe", name)
    done = fornada("deploy", folder, "--wait")
    assert any(len(word.strip(".,:")) >= 12 for word in done.stdout.split()), f"it prints the version's digest: {done.stdout}"
    yield name
    node.remove(name)


def test_deploy_and_wait_then_run_list_and_look(fornada: Run, deployed: str):
    listed = {model["name"]: model for model in models(fornada)}
    assert listed[deployed]["state"] == "ready", "--wait waits until it is warm"
    table = fornada("models").stdout
    assert deployed in table and "ready" in table
    result = json.loads(fornada("run", deployed, "--input", '{"echo": {"a": [1, "ü"]}}', "--json").stdout)
    assert "ü" in json.dumps(result, ensure_ascii=False)
    assert "hello" in fornada("run", deployed, "-i", "echo=hello").stdout
    assert "piped" in fornada("run", deployed, "--input", "-", stdin='{"echo": "piped"}').stdout
    instances = fornada("ps", "--json").stdout
    assert deployed in instances and deployed in fornada("ps").stdout


SCHEMA = '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'
CODE = "def handle_request(request, context):\n    return {'n': request.body.json['n']}\n"


def test_an_input_that_a_model_does_not_take_loads_nothing(fornada: Run, node: Node, fresh_name):
    name = str(fresh_name())
    toml = f'name = "{name}"\n[schema]\ninput = "in.json"\n'
    node.deploy(name, archive({"model.toml": toml, "in.json": SCHEMA, "model.py": CODE}))
    fornada("load", name)
    fornada("unload", name)
    loads = node.loads(name)
    assert "/n" in fornada("run", name, "-i", "n=x", code=1).stderr
    assert node.run(name, {}).status == 400
    assert node.model(name)["state"] == "stopped" and node.loads(name) == loads
    assert json.loads(fornada("run", name, "-i", "n=3", "--json").stdout) == {"n": 3}
    assert node.loads(name) == loads + 1
    node.remove(name)


def models(fornada: Run) -> list[dict]:
    found = json.loads(fornada("models", "--json").stdout)
    listed: list[dict] = found["models"] if isinstance(found, dict) else found
    return listed


def test_a_file_and_a_stream(fornada: Run, deployed: str, tmp_path: Path):
    (tmp_path / "input.json").write_text('{"echo": "from a file"}')
    assert "from a file" in fornada("run", deployed, "--file", tmp_path / "input.json").stdout
    assert "oven" in fornada("run", deployed, "--input", '{"text": "oven"}', "--stream").stdout.replace("\n", "")


def test_logs_why_and_versions_speak_of_the_model(fornada: Run, deployed: str):
    fornada("run", deployed, "-i", "echo=1")
    lines = [json.loads(line) for line in fornada("logs", deployed, "--json").stdout.splitlines()]
    assert lines and all({"time", "stream", "line"} <= line.keys() for line in lines)
    assert any(line.get("request_id") for line in lines), "output is tied to request ids"
    assert fornada("logs", deployed).stdout
    assert deployed in fornada("why", deployed).stdout


def test_load_unload_and_reset_answer_when_it_is_true(fornada: Run, node: Node, deployed: str):
    fornada("unload", deployed)
    assert node.state(deployed) == "stopped"
    fornada("load", deployed)
    assert node.state(deployed) == "ready"
    fornada("reset", deployed)
    assert node.state(deployed) == "ready"


def test_rm_removes_and_then_there_is_none(fornada: Run, deployed: str):
    fornada("rm", deployed)
    assert deployed not in [model["name"] for model in models(fornada)]
    failed = fornada("run", deployed, "-i", "echo=1", code=1)
    assert len(failed.stderr.strip().splitlines()) == 1 and deployed in failed.stderr


def test_logs_follow_what_comes(node: Node, probe: Probe):
    model = probe()
    node.load(model)
    environ = node_environ({"FORNADA_URL": node.url, "PYTHONUNBUFFERED": "1"})
    with subprocess.Popen([str(FORNADA), "logs", model, "-f"], stdout=subprocess.PIPE, text=True, env=environ) as follower:
        try:
            node.ask(model, {"echo": "look for this"})
            assert follower.stdout
            until(lambda: follower.stdout.readline(), within_s=10, what="a line arrives")  # type: ignore[union-attr]
        finally:
            follower.terminate()


def test_doctor_says_what_this_machine_offers(fornada: Run):
    found = json.loads(fornada("doctor", "--json").stdout)
    assert "isolation" in json.dumps(found)
    assert "isolation" in fornada("doctor").stdout


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("run", "no/such-model", "-i", "a=1"), 1),
        (("run", "x", "--input", "{broken"), (1, 2)),
        (("run",), 2),
        (("no-such-command",), 2),
        (("deploy", "/no/such/folder"), (1, 2)),
        (("why", "no/such-model"), 1),
        (("load", "no/such-model"), 1),
        (("rm", "no/such-model"), 1),
    ],
    ids=str,
)
def test_a_failure_is_one_line_and_a_code(node: Node, arguments: tuple, code: int | tuple):
    environ = node_environ({"FORNADA_URL": node.url})
    done = subprocess.run([str(FORNADA), *arguments], capture_output=True, text=True, timeout=bound(30), env=environ, check=False)
    assert done.returncode in (code if isinstance(code, tuple) else (code,)), (done.returncode, done.stderr)
    assert done.stderr.strip() and "Traceback" not in done.stderr
    if code == 1:
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr


@pytest.mark.parametrize("command", ["run", "models", "ps", "logs"])
def test_without_a_node_one_line_says_how_to_start_one(command: str):
    arguments = [command, *(["x", "-i", "a=1"] if command == "run" else ["x"] if command == "logs" else [])]
    environ = node_environ({"FORNADA_URL": "http://127.0.0.1:9"})
    done = subprocess.run([str(FORNADA), *arguments], capture_output=True, text=True, timeout=bound(30), env=environ, check=False)
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1 and "fornada serve" in done.stderr


@pytest.mark.parametrize(
    "command", ["serve", "models", "run", "deploy", "load", "unload", "reset", "rm", "ps", "logs", "why", "doctor", "prune"]
)
def test_every_command_has_help_with_an_example(command: str):
    done = subprocess.run(
        [str(FORNADA), command, "--help"], capture_output=True, text=True, timeout=bound(20), env=node_environ(), check=True
    )
    assert f"fornada {command}" in done.stdout
    assert "xample" in done.stdout
