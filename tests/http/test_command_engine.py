"""Engine "command" through a whole node: an OpenAI-speaking server of our own, deployed as any other model."""

from collections.abc import Callable
from pathlib import Path

from tests.harness.bundles import archive
from tests.harness.node import Node
from tests.harness.processes import Process
from tests.harness.waiting import until

SERVER = Path(__file__).parents[1] / "unit" / "sdk" / "openai_server.py"
TOML = """
engine = "command"
task = "text-generation"
[command]
args = ["python", "-I", "{folder}/server.py", "--socket", "{socket}", "--child"]
socket = "server.sock"
[serving]
concurrency = 4
"""


def deploy(node: Node, name: str) -> None:
    node.deploy(name, archive({"model.toml": f'name = "{name}"\n{TOML}', "server.py": SERVER.read_bytes()}))


def started_by(node: Node, runner: int) -> list[Process]:
    """What lives in the runner's session: the server, and the process that it has started."""
    return [process for process in node.tree() if process.pid != runner and session_of(process) == runner]


def session_of(process: Process) -> int:
    try:
        return int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[3])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def test_both_doors_lead_to_the_server(node: Node, fresh_name: Callable[[], str]):
    name = fresh_name()
    deploy(node, name)
    assert node.ask(name, {"prompt": "hello there"})["response"] == "hello there"
    events = node.stream(name, {"messages": [{"role": "user", "content": "a b c"}], "stream": True})
    assert events.done and "".join(item["response"] for item in events.items) == "abc"
    assert events.items[-1]["usage"]["completion_tokens"] == 3
    body = {"model": name, "messages": [{"role": "user", "content": "through the other door"}]}
    answer = node.fetch("POST", "/v1/chat/completions", payload=body).json()
    assert answer["choices"][0]["message"]["content"] == "through the other door" and answer["model"] == name
    refused = node.run(name, {"prompt": "refuse this"})
    assert (refused.status, refused.code) == (400, 5006)
    assert any("server pid" in line["line"] for line in node.log_lines(name))


def test_a_dead_server_is_told_at_once_and_started_again(node: Node, fresh_name: Callable[[], str]):
    name = fresh_name()
    deploy(node, name)
    node.ask(name, {"prompt": "hello"})
    died = node.run(name, {"prompt": "die now"})
    assert (died.status, died.code) == (502, 3101) and "exit code 9: dying as asked" in died.message
    assert node.ask(name, {"prompt": "again"}, timeout_s=60)["response"] == "again"


def test_an_unload_leaves_nothing_of_the_server(node: Node, fresh_name: Callable[[], str]):
    name = fresh_name()
    deploy(node, name)
    node.ask(name, {"prompt": "hello"})
    (runner,) = node.pids(name)
    found = started_by(node, runner)
    assert len(found) == 2, found
    assert node.unload(name).status == 200
    until(lambda: not any(process.alive for process in found), within_s=10, what="nothing of it runs")
