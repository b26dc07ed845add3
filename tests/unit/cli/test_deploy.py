"""`fornada deploy`: what is packed, what is refused, what --wait waits for."""

import gzip
import io
import json
import os
import tarfile
import threading
from pathlib import Path

import pytest

from fornada.cli import bundle
from fornada.cli.failures import CommandFailed
from tests.bounds import bound
from tests.unit.cli.conftest import Cli, line
from tests.unit.cli.fake_node import Asked, FakeNode, Said, error, model, say

NAME = "@local/mine"
PATH = f"/api/v1/models/{NAME}"
NEW = "ab" * 32
OLD = "cd" * 32


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small model folder called `mine`."""
    folder = tmp_path / "mine"
    (folder / "weights").mkdir(parents=True)
    (folder / "model.py").write_text("def handle_request(request, context): return {}\n")
    (folder / "weights" / "a.bin").write_bytes(b"\0\1\2")
    return folder


def accepts(node: FakeNode, name: str = NAME) -> None:
    node.on("GET", "/api/v1/nodes", say({"nodes": [{"url": node.url}]}))
    node.on("PUT", f"/api/v1/models/{name}", say({"name": name, "version": NEW, "state": "pending"}))


def names_in(content: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(content))) as archive:
        return archive.getnames()


def test_a_folder_is_packed_and_put_under_the_name_of_its_folder(cli: Cli, node: FakeNode, folder: Path):
    accepts(node)
    result = cli("deploy", folder)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith(f"{NAME}: version {NEW} (2 files, ")
    asked = node.one("PUT", PATH)
    assert names_in(asked.body) == ["model.py", "weights/a.bin"]
    assert asked.query == {"label": "stable"}
    assert int(asked.headers["content-length"]) == len(asked.body)


def test_the_name_is_the_flag_then_model_toml_then_the_folder(cli: Cli, node: FakeNode, folder: Path):
    (folder / "model.toml").write_text('name = "@acme/declared"\n')
    accepts(node, "@acme/declared")
    accepts(node, "@acme/given")
    assert cli("deploy", folder, "--label", "canary").exit_code == 0
    assert node.one("PUT", "/api/v1/models/@acme/declared").query == {"label": "canary"}
    assert cli("deploy", folder, "--name", "@acme/given").exit_code == 0
    node.one("PUT", "/api/v1/models/@acme/given")


def test_the_current_folder_has_a_name_too(cli: Cli, node: FakeNode, folder: Path, monkeypatch: pytest.MonkeyPatch):
    accepts(node)
    monkeypatch.chdir(folder)
    assert cli("deploy", ".").exit_code == 0
    node.one("PUT", PATH)


def test_json_is_what_the_api_answers(cli: Cli, node: FakeNode, folder: Path):
    accepts(node)
    assert json.loads(cli("deploy", folder, "--json").stdout) == {"name": NAME, "version": NEW, "state": "pending"}


def test_the_node_may_refuse(cli: Cli, node: FakeNode, folder: Path):
    accepts(node)
    node.on("PUT", PATH, error(400, 5010, "model.toml: [serving] has no key 'concurency'; did you mean 'concurrency'?"))
    result = cli("deploy", folder)
    assert result.exit_code == 1
    assert "did you mean 'concurrency'?" in line(result) and "mend the folder" in line(result)


@pytest.mark.parametrize("folder_name", ["nothing-here", "empty", "broken"])
def test_what_is_no_model_is_refused_before_it_is_sent(cli: Cli, node: FakeNode, tmp_path: Path, folder_name: str):
    accepts(node)
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "model.toml").write_text("name = \n[")
    result = cli("deploy", tmp_path / folder_name)
    assert result.exit_code == 1
    assert folder_name in line(result)
    assert not [asked for asked in node.asked if asked.method == "PUT"]


def test_a_folder_without_a_node_says_how_to_start_one(cli: Cli, folder: Path, nowhere: str):
    result = cli("deploy", folder, url=nowhere)
    assert result.exit_code == 1
    assert "start one with 'fornada serve" in line(result)


def test_equal_folders_give_equal_bytes(folder: Path, tmp_path: Path):
    first = bundle.pack(folder)
    twin = tmp_path / "twin"
    (twin / "weights").mkdir(parents=True)
    (twin / "weights" / "a.bin").write_bytes(b"\0\1\2")
    (twin / "model.py").write_text((folder / "model.py").read_text())
    os.utime(twin / "model.py", (1, 1))
    os.chmod(twin / "model.py", 0o600)
    assert bundle.pack(twin) == first
    (twin / "model.py").write_text("x = 1\n")
    assert bundle.pack(twin).sha256 != first.sha256


def test_what_tools_leave_behind_is_not_packed(folder: Path):
    for name in (".git/config", "__pycache__/model.cpython-311.pyc", ".venv/bin/python", "weights/.DS_Store", "a.pyc", "node_modules/x/y"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    (folder / ".gitignore").write_text("weights/\n")
    assert bundle.pack(folder).files == (".gitignore", "model.py", "weights/a.bin")


def test_a_link_to_a_file_inside_is_packed_as_that_file(folder: Path):
    (folder / "link.bin").symlink_to("weights/a.bin")
    content = bundle.pack(folder).content
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(content))) as archive:
        entry = archive.getmember("link.bin")
        assert entry.isreg() and entry.size == 3


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "weights", "nowhere"])
def test_any_other_link_is_refused(folder: Path, target: str):
    (folder.parent / "outside").write_text("x")
    (folder / "link").symlink_to(target)
    with pytest.raises(CommandFailed, match="only links to files inside the folder are packed"):
        bundle.pack(folder)


def test_what_is_no_file_is_refused(folder: Path):
    os.mkfifo(folder / "pipe")
    with pytest.raises(CommandFailed, match="neither a file nor a folder"):
        bundle.pack(folder)


def test_the_limit_is_named_and_the_nodes_own_is_believed(cli: Cli, node: FakeNode, folder: Path):
    accepts(node)
    (folder / "weights" / "a.bin").write_bytes(os.urandom(200_000))
    node.on("GET", "/api/v1/nodes", say({"nodes": [{"max_bundle_bytes": 100_000}]}))
    result = cli("deploy", folder)
    assert result.exit_code == 1
    assert "packs to more than 97.7 KiB, the limit of a bundle ([server] max_bundle)" in line(result)
    node.on("GET", "/api/v1/nodes", say({"nodes": [{"max_bundle_bytes": 300_000}]}))
    assert cli("deploy", folder).exit_code == 0


def versions(state: str, why: str = "") -> list[dict[str, object]]:
    return [
        {"version": OLD, "labels": [], "state": "ready", "why": "", "created": None},
        {"version": NEW, "labels": ["stable"], "state": state, "why": why, "created": None},
    ]


def test_wait_ends_when_the_new_version_answers(cli: Cli, node: FakeNode, folder: Path):
    accepts(node)
    looks: list[int] = []

    def look(_: Asked) -> Said:
        looks.append(1)
        switched = len(looks) > 3
        return say(model(NAME, version=NEW if switched else OLD, versions=versions("ready" if switched else "pending")))

    node.on("POST", f"{PATH}/load", say(model(NAME, version=OLD)))
    node.on("GET", PATH, look)
    result = cli("deploy", folder, "--wait")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[1] == f"{NAME}: ready, pid 4711 on cpu, 48 MiB"
    assert len(looks) > 3


def test_wait_shows_the_build(cli: Cli, node: FakeNode, folder: Path):
    accepts(node)
    seen = threading.Event()

    def look(_: Asked) -> Said:
        if node.asked.count(_) > 1:
            seen.set()
        return say(model(NAME, version=NEW, progress={"phase": "building", "text": "numpy", "fraction": None}))

    def load(_: Asked) -> Said:
        assert seen.wait(bound(10))
        return say(model(NAME, version=NEW))

    node.on("POST", f"{PATH}/load", load)
    node.on("GET", PATH, look)
    result = cli("deploy", folder, "--wait")
    assert (result.exit_code, line(result)) == (0, f"{NAME}: building: numpy")


def test_wait_tells_why_a_first_version_failed(cli: Cli, node: FakeNode, folder: Path):
    accepts(node)
    node.on("POST", f"{PATH}/load", error(503, 3102, "load failed: exit code 1; last line: ImportError: no x", retry_after="1"))
    node.on("GET", PATH, say(model(NAME, version=NEW, state="failed", versions=versions("failed", "x")[1:])))
    result = cli("deploy", folder, "--wait")
    assert result.exit_code == 1
    assert "ImportError: no x [3102, the model's fault]" in line(result)


@pytest.mark.parametrize("loaded", [True, False], ids=["it had failed before", "it fails while it is waited for"])
def test_wait_tells_why_a_second_version_failed_and_that_the_first_goes_on(cli: Cli, node: FakeNode, folder: Path, loaded: bool):
    accepts(node)
    node.on("POST", f"{PATH}/load", say(model(NAME, version=OLD)) if loaded else error(503, 3102, "x", retry_after="1"))
    node.on("GET", PATH, say(model(NAME, version=OLD, versions=versions("failed", "ImportError: no x"))))
    result = cli("deploy", folder, "--wait")
    assert result.exit_code == 1
    assert f"version {NEW[:12]} of {NAME} can't be loaded: ImportError: no x (the model's fault)" in line(result)
    assert f"version {OLD[:12]} goes on serving" in line(result)


def test_wait_does_not_wait_for_what_another_deploy_has_superseded(cli: Cli, node: FakeNode, folder: Path):
    accepts(node)
    third = [{"version": "ef" * 32, "labels": ["stable"], "state": "ready", "why": "", "created": None}]
    node.on("POST", f"{PATH}/load", say(model(NAME, version="ef" * 32)))
    node.on("GET", PATH, say(model(NAME, version="ef" * 32, versions=[{**each, "labels": []} for each in versions("stopped")] + third)))
    result = cli("deploy", folder, "--wait")
    assert result.exit_code == 1
    assert f"version {NEW[:12]} of {NAME} is no longer the wanted one: version efefefefefef has taken its place" in line(result)


def test_a_canary_is_not_waited_for(cli: Cli, node: FakeNode, folder: Path):
    result = cli("deploy", folder, "--wait", "--label", "canary")
    assert result.exit_code == 2
    assert "loaded by its first request" in line(result)
    assert not node.asked
