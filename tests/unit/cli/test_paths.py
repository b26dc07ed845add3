"""Paths where this user can't look are the caller's to mend, not a bug.

A name that is too long stands for a closed folder: the system refuses it to root, too."""

import os
from pathlib import Path

import pytest

from fornada.cli.paths import unreachable
from tests.unit.cli.conftest import Cli, line
from tests.unit.cli.fake_node import FakeNode, say

LONG = "/" + "x" * 300
WHY = "File name too long"


@pytest.mark.parametrize(
    "args", [("deploy", LONG), ("prune", "--data-dir", LONG), ("run", "@a/b", "--input", "{}", "--out", LONG + "/x.json")]
)
def test_a_path_that_can_t_be_looked_at_is_one_line_that_says_why(cli: Cli, node: FakeNode, args: tuple[str, ...]):
    node.on("GET", "/api/v1/nodes", say({"nodes": []}))
    result = cli(*args)
    assert result.exit_code == 1
    assert line(result).startswith(f"fornada: {args[-1]}: {WHY};")


@pytest.mark.parametrize(("variable", "subject"), [("SSL_CERT_FILE", "certificates"), ("FORNADA_MIRROR", "mirror")])
def test_doctor_names_the_setting_whose_path_can_t_be_looked_at(
    cli: Cli, nowhere: str, monkeypatch: pytest.MonkeyPatch, variable: str, subject: str
):
    monkeypatch.setenv(variable, LONG)
    result = cli("doctor", url=nowhere)
    assert result.exit_code == 1
    (said,) = [text for text in result.stdout.splitlines() if text.split()[:2] == ["fail", subject]]
    assert variable in said


def test_doctor_looks_at_what_can_be_seen_above_a_data_directory_that_can_t(cli: Cli, nowhere: str):
    assert f"data directory    {LONG} (will be made)" in cli("doctor", "--data-dir", LONG, url=nowhere).stdout


def test_an_output_that_can_t_be_written_is_refused_before_the_model_works(cli: Cli, node: FakeNode, tmp_path: Path):
    (tmp_path / "file").touch()
    for place, why in ((tmp_path, "Is a directory"), (tmp_path / "file" / "x", "Not a directory"), (tmp_path / "no" / "x", "No such file")):
        result = cli("run", "@a/b", "--input", "{}", "--out", str(place))
        assert result.exit_code == 1
        assert line(result).startswith(f"fornada: {place}: {why}")
    assert not [asked for asked in node.asked if asked.method == "POST"]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_a_closed_folder_is_told_as_such(tmp_path: Path):
    tmp_path.chmod(0)
    try:
        assert unreachable(tmp_path / "x") == "Permission denied"
    finally:
        tmp_path.chmod(0o700)


def test_what_is_there_can_be_reached(tmp_path: Path):
    assert unreachable(tmp_path) == ""
    assert unreachable("a\0b") == "embedded null byte"
