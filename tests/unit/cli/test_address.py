"""Which node a command talks to: flag, environment, what a node wrote down, the default."""

import json
import os
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from fornada.cli.address import DEFAULT_URL, complete, resolve
from fornada.cli.main import fornada
from tests.unit.cli.fake_node import FakeNode, say


def write_node_file(data_dir: Path, **fields: object) -> None:
    (data_dir / "run").mkdir(parents=True)
    content = {"main_pid": os.getpid(), "url": "http://127.0.0.1:9999", "account": "local", **fields}
    (data_dir / "run" / "node.json").write_text(json.dumps(content))


def found(environ: dict[str, str], **flags: str) -> str:
    return resolve(url=flags.get("url"), account=None, token=None, environ=environ).url


def test_a_named_url_beats_what_a_node_wrote(tmp_path: Path):
    write_node_file(tmp_path)
    assert found({"FORNADA_DATA_DIR": str(tmp_path)}, url="http://127.0.0.1:7000") == "http://127.0.0.1:7000"


def test_a_running_node_is_found_by_its_data_directory(tmp_path: Path, home: Path):
    write_node_file(tmp_path / "a")
    write_node_file(tmp_path / "data" / "fornada", url="http://127.0.0.1:9998")
    assert found({"FORNADA_DATA_DIR": str(tmp_path / "a")}) == "http://127.0.0.1:9999"
    if os.geteuid() != 0:
        assert found({"XDG_DATA_HOME": str(tmp_path / "data")}) == "http://127.0.0.1:9998"


def test_the_node_of_a_clone_is_found(home: Path):
    write_node_file(home / ".fornada")
    assert found({"HOME": str(home), "XDG_DATA_HOME": str(home / "x")}) == "http://127.0.0.1:9999"


@pytest.mark.parametrize(
    "fields",
    [{"main_pid": 2**22 + 1}, {"main_pid": None}, {"url": "http://192.0.2.1:80"}, {"url": "http://127.0.0.1.example.org"}, {"url": None}],
)
def test_a_file_of_a_dead_node_or_one_that_leads_away_is_not_believed(tmp_path: Path, fields: dict[str, object]):
    write_node_file(tmp_path, **fields)
    assert found({"FORNADA_DATA_DIR": str(tmp_path)}) == DEFAULT_URL


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_node_file(tmp_path)
    os.chown(tmp_path / "run" / "node.json", 12345, 12345)
    assert found({"FORNADA_DATA_DIR": str(tmp_path)}) == DEFAULT_URL


@pytest.mark.parametrize("content", ["", "[]", "{", "null"])
def test_a_broken_file_is_passed_over(tmp_path: Path, content: str):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "node.json").write_text(content)
    assert found({"FORNADA_DATA_DIR": str(tmp_path)}) == DEFAULT_URL


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("127.0.0.1:8250", "http://127.0.0.1:8250"),
        ("localhost", "http://localhost"),
        ("http://h:1/", "http://h:1"),
        ("http://h:1/client/v4", "http://h:1"),
        ("http://h:1/v1/", "http://h:1"),
        ("https://h/fornada", "https://h/fornada"),
        ("http://[::1]:8250", "http://[::1]:8250"),
    ],
)
def test_an_address_is_completed(given: str, meant: str):
    assert complete(given) == meant


@pytest.mark.parametrize("given", ["", "http://", "ftp://h", "http://[", "http://h:x", "http://h:99999"])
def test_what_is_no_address_is_refused(given: str):
    with pytest.raises(click.UsageError, match="is no address of a node"):
        complete(given)


def test_flag_beats_environment_for_url_token_and_account(node: FakeNode, home: Path, nowhere: str):
    node.on("GET", "/api/v1/models", say({"models": []}))
    node.on("GET", "/api/v1/models/@a/b", say({"name": "@a/b", "state": "ready"}))
    node.on("POST", "/client/v4/accounts/mine/ai/run/@a/b", say({"result": {"ok": 1}, "success": True, "errors": [], "messages": []}))
    env = {"FORNADA_URL": nowhere, "FORNADA_TOKEN": "from-env", "FORNADA_ACCOUNT": "from-env"}
    args = ["run", "@a/b", "--url", node.url, "--token", "secret", "--account", "mine"]
    result = CliRunner(env=env).invoke(fornada, args)
    assert result.exit_code == 0, result.stderr
    assert node.asked[-1].headers["authorization"] == "Bearer secret"

    result = CliRunner(env={**env, "FORNADA_URL": node.url}).invoke(fornada, ["models"])
    assert result.exit_code == 0, result.stderr
    assert node.asked[-1].headers["authorization"] == "Bearer from-env"


def test_a_proxy_is_not_asked_for_this_machine(node: FakeNode, home: Path, nowhere: str, monkeypatch: pytest.MonkeyPatch):
    node.on("GET", "/api/v1/models", say({"models": []}))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, nowhere)
    assert CliRunner(env={"FORNADA_URL": node.url}).invoke(fornada, ["models"]).exit_code == 0
