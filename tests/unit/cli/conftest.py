"""The command, run in this process against a scripted node."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fornada.cli.main import fornada
from tests.unit.cli.fake_node import FakeNode

Cli = Callable[..., Result]


@pytest.fixture
def node() -> Iterator[FakeNode]:
    with FakeNode() as fake:
        yield fake


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home and an empty current directory: no node of this machine is found by accident."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("FORNADA_DATA_DIR", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cli(node: FakeNode, home: Path) -> Cli:
    """Runs a command against the scripted node."""

    def run(*args: str, url: str = node.url, input: bytes | str | None = None) -> Result:
        return CliRunner(env={"FORNADA_URL": url}).invoke(fornada, [str(arg) for arg in args], input=input, prog_name="fornada")

    return run


@pytest.fixture
def nowhere() -> Iterator[str]:
    """An address where nobody listens: the port is bound, so that nobody else can come to."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def line(result: Result) -> str:
    """The one line of complaint. Fails where there is another, or a traceback."""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    return lines[0]
