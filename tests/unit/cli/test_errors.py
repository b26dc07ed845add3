"""Whatever goes wrong is one line that says what happened, whose fault it is and what to do; exit codes are 0, 1, 2."""

import subprocess
import sys
from pathlib import Path

import pytest

from fornada.cli.failures import ADVICE, refusal, whose_fault
from fornada.cli.main import COMMANDS
from fornada.core import errors
from tests.bounds import bound
from tests.unit.cli.conftest import Cli, line
from tests.unit.cli.fake_node import FakeNode, Said, error, say

NEEDS_A_NODE = {
    "models": ["models"],
    "run": ["run", "@a/b", "-i", "x=1"],
    "batch": ["batch", "status", "JOB"],
    "versions": ["versions", "@a/b"],
    "rm": ["rm", "@a/b", "--yes"],
    "load": ["load", "@a/b"],
    "unload": ["unload", "@a/b"],
    "sleep": ["sleep", "@a/b"],
    "pin": ["pin", "@a/b"],
    "reset": ["reset", "@a/b"],
    "ps": ["ps"],
    "top": ["top"],
    "logs": ["logs", "@a/b"],
    "why": ["why", "@a/b"],
    "nodes": ["nodes"],
    "unfence": ["unfence", "cuda:0"],
    "prune": ["prune"],
    "usage": ["usage"],
}
WITHOUT_A_NODE = {"serve", "doctor", "deploy", "simulate", "keys", "backup", "restore"}
"""deploy looks at the folder first; it has its own test."""


def test_every_command_is_covered_here():
    assert NEEDS_A_NODE.keys() | WITHOUT_A_NODE == {name for names in COMMANDS.values() for name in names}


@pytest.mark.parametrize("name", NEEDS_A_NODE)
def test_without_a_node_one_line_says_how_to_start_one(cli: Cli, nowhere: str, name: str):
    result = cli(*NEEDS_A_NODE[name], url=nowhere)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert line(result).startswith(f"fornada: no node answers at {nowhere}; start one with 'fornada serve")


@pytest.mark.parametrize("name", NEEDS_A_NODE)
def test_a_refusal_is_one_line_and_exit_code_1(cli: Cli, node: FakeNode, name: str):
    result = cli(*NEEDS_A_NODE[name])  # the fake has no route at all
    assert result.exit_code == 1
    assert "No route for that URI" in line(result)
    assert node.asked


@pytest.mark.parametrize("name", [name for names in COMMANDS.values() for name in names])
def test_every_command_has_help_with_an_example_and_refuses_unknown_options(cli: Cli, name: str):
    shown = cli(name, "--help")
    assert shown.exit_code == 0
    assert f"Example:\n    fornada {name}" in shown.stdout
    wrong = cli(name, "--no-such-option")
    assert wrong.exit_code == 2
    assert line(wrong) == f"fornada {name}: No such option '--no-such-option'; see 'fornada {name} --help'"


@pytest.mark.parametrize(
    "args", [["run"], ["load"], ["load", "a", "b"], ["rm", "../x"], ["load", "/"], ["ps", "--url", "ftp://x"], ["ps", "--url", "http://["]]
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(cli: Cli, args: list[str]):
    result = cli(*args)
    assert result.exit_code == 2
    assert line(result)


def test_a_mistyped_command_is_told_its_neighbour(cli: Cli):
    result = cli("dploy")
    assert result.exit_code == 2
    assert line(result) == "fornada: no such command 'dploy'; did you mean 'deploy'?; see 'fornada --help'"


def test_a_refusal_says_whose_fault_it_is_and_when_to_try_again(cli: Cli, node: FakeNode):
    node.on("POST", "/api/v1/models/@a/b/load", error(503, 3102, "exit code 1: ImportError: no module\nnamed x", retry_after="7"))
    result = cli("load", "@a/b")
    assert result.exit_code == 1
    said = line(result)
    assert said.startswith(
        "fornada: exit code 1: ImportError: no module named x [3102, the model's fault]; a request after 7 s tries again;"
    )
    assert "'fornada logs @a/b'" in said and "fornada reset @a/b" in said


def test_a_connection_that_closes_is_told_as_such(cli: Cli, node: FakeNode):
    node.on("POST", "/api/v1/models/@a/b/load", Said(b"", close=True))
    result = cli("load", "@a/b")
    assert result.exit_code == 1
    assert "closed the connection before it had answered" in line(result)
    assert f"or it speaks TLS: write {node.url.replace('http', 'https')}" in line(result)


@pytest.mark.parametrize("group", ["keys", "batch"])
def test_a_group_alone_names_what_it_can_do_in_one_line(cli: Cli, group: str):
    result = cli(group)
    assert result.exit_code == 2
    assert line(result).startswith(f"fornada {group}: say what to do: c") and len(line(result)) < 120


@pytest.mark.parametrize("token", ["fnd_\n_x", "cl\u00e9", "two words", "a\0b"])
def test_a_token_that_can_be_none_is_refused_and_not_shown(cli: Cli, node: FakeNode, token: str):
    result = cli("usage", "--token", token)
    assert result.exit_code == 2
    assert "FORNADA_TOKEN" in line(result) and token not in line(result)


def test_a_token_may_have_the_end_of_its_file_behind_it(cli: Cli, node: FakeNode):
    node.on("GET", "/api/v1/usage", say({"usage": []}))
    assert cli("usage", "--token", "fnd_x\n").exit_code == 0
    assert node.one("GET", "/api/v1/usage").headers["authorization"] == "Bearer fnd_x"


def test_a_node_without_tls_that_is_asked_with_it_is_named(cli: Cli, node: FakeNode):
    result = cli("models", url=node.url.replace("http", "https"))
    assert (
        result.exit_code == 1
        and line(result) == f"fornada: what answers at {node.url.replace('http', 'https')} speaks no TLS; write {node.url}"
    )


@pytest.mark.parametrize("said", [Said(b"<h1>Bad gateway</h1>", 502, "text/html"), Said(b"<h1>Hi</h1>", 200, "text/html"), say([1])])
def test_somebody_else_at_the_address_is_not_taken_for_a_node(cli: Cli, node: FakeNode, said: Said):
    node.on("GET", "/api/v1/models/@a/b", said)
    result = cli("versions", "@a/b")
    assert result.exit_code == 1
    assert line(result)


def with_code(kind: type[errors.FornadaError] = errors.FornadaError) -> list[type[errors.FornadaError]]:
    """Every error that has a code of its own."""
    own = [kind] if "code" in kind.__dict__ else []
    return own + [found for child in kind.__subclasses__() for found in with_code(child)]


@pytest.mark.parametrize("kind", with_code())
def test_every_error_of_the_tree_has_an_owner(kind: type[errors.FornadaError]):
    assert (whose_fault(kind.code) in ("the request's fault", "the model folder's fault")) == issubclass(kind, errors.CallerFault)


def test_advice_is_for_codes_that_exist():
    assert set(ADVICE) <= {kind.code for kind in with_code()}


def test_an_error_without_a_code_is_still_told():
    assert refusal({"message": "odd"}).message == "odd"
    assert refusal({}).message == "refused without a reason"
    assert refusal({"code": "4711", "message": "odd."}).message == "odd [4711]"


def test_what_other_clients_expect_in_front_of_a_message_is_left_out():
    said = {"code": 5006, "message": "AiError: Bad input: Error: 'image' is missing"}
    assert refusal(said, model="@a/b").message.startswith("'image' is missing [5006, the request's fault]; mend the input")
    said = {"code": 3030, "message": "AiError: AiError: not that picture (1f0c)"}
    assert refusal(said).message == "not that picture (1f0c) [3030, the request's fault]"


def run_alone(*args: str, code: str = "") -> "subprocess.CompletedProcess[str]":
    start = f"{code}\nfrom fornada.cli.main import main\nmain()"
    return subprocess.run([sys.executable, "-c", start, *args], capture_output=True, text=True, timeout=bound(30))


BUG = "import fornada.cli.client as c\ndef broken(*_, **__): raise ZeroDivisionError('a\\nb')\nc.Node.__init__ = broken"


def test_a_bug_is_called_one_in_one_line():
    done = run_alone("ps", code=BUG)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("fornada: unexpected ZeroDivisionError: a b; this is a bug in Fornada: report it")
    assert len(done.stderr.splitlines()) == 1


def test_a_full_disk_is_no_bug():
    done = subprocess.run(
        f"{sys.executable} -c 'from fornada.cli.main import main; main()' simulate --duration 1 > /dev/full",
        shell=True,
        capture_output=True,
        text=True,
        timeout=bound(30),
    )
    assert done.returncode == 1
    assert done.stderr == "fornada: can't write or open what is printed: No space left on device; make room and try again\n"


def test_debug_shows_the_traceback():
    done = run_alone("--debug", "ps", code=BUG)
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_a_reader_that_leaves_is_no_error(tmp_path: Path):
    done = subprocess.run(
        f"{sys.executable} -c 'from fornada.cli.main import main; main()' --help | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
        timeout=bound(30),
    )
    assert done.stderr == ""
    assert done.stdout.startswith("Usage: fornada")


def test_help_imports_nothing_slow():
    slow = "{'httpx', 'rich', 'msgspec', 'asyncio', 'starlette', 'PIL'}"
    code = f"import sys, atexit; atexit.register(lambda: print(sorted({slow} & sys.modules.keys()), file=sys.stderr))"
    done = run_alone("--help", code=code)
    assert done.returncode == 0
    assert done.stderr.strip() == "[]"
