"""TAB: what each shell is told, and what a real bash makes of it."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from docs.generate import commands
from tests.bounds import bound
from tests.unit.cli.fake_node import FakeNode, Said, model, say

COMMAND = f"{sys.executable} -c 'from fornada.cli.main import main; main()'"


@pytest.fixture
def models(node: FakeNode) -> FakeNode:
    node.on("GET", "/api/v1/models", say({"models": [model("@a/one", aliases=["@cf/x/one"]), model("@a/two:x"), model("@b/ü")]}))
    return node


def ask(how: str, url: str, **words: str) -> str:
    env = {**os.environ, "FORNADA_URL": url, "_FORNADA_COMPLETE": how, **words}
    command = [sys.executable, "-c", "from fornada.cli.main import main; main()"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=bound(20), check=False)
    assert done.stderr == ""
    return done.stdout.strip()


def test_zsh_and_fish_are_offered_commands_with_their_help(models: FakeNode):
    zsh = ask("zsh_complete", models.url, COMP_WORDS="fornada lo", COMP_CWORD="1").splitlines()
    assert zsh[::3] == ["plain", "plain"] and zsh[1::3] == ["load", "logs"] and "Load a model now" in zsh[2]
    fish = ask("fish_complete", models.url, COMP_WORDS="fornada lo", COMP_CWORD="lo")
    assert "load" in fish and "logs" in fish


@pytest.mark.parametrize("command", ["run", "models", "logs", "why", "versions", "rm", "load", "unload", "sleep", "pin", "reset"])
def test_models_are_offered_by_names_and_aliases(models: FakeNode, command: str):
    zsh = ask("zsh_complete", models.url, COMP_WORDS=f"fornada {command} @", COMP_CWORD="2").splitlines()
    assert zsh[1::3] == ["@a/one", "@a/two:x", "@b/ü", "@cf/x/one"]


@pytest.mark.parametrize("word", ["@a/", "@a/two:", "@b/ü"])
def test_bash_is_offered_what_follows_the_last_break_of_its_word(models: FakeNode, word: str):
    said = ask("bash_complete", models.url, COMP_WORDS=f"fornada run {word}", COMP_CWORD="-1", COMP_BREAKS=" \"'@><=;|&(:")
    assert said.split() == {"@a/": ["plain,@a/one", "plain,@a/two:x"], "@a/two:": ["plain,x"], "@b/ü": ["plain,@b/ü"]}[word]


def test_without_a_node_nothing_is_offered_and_nothing_said(nowhere: str):
    assert ask("zsh_complete", nowhere, COMP_WORDS="fornada run @", COMP_CWORD="2") == ""


def test_files_are_offered_where_a_file_is_meant(models: FakeNode):
    for words in ("fornada run x --file ", "fornada run x --out ", "fornada deploy "):
        assert ask("bash_complete", models.url, COMP_WORDS=words, COMP_CWORD="-1").split(",")[0] in ("file", "dir")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_line_that_the_docs_give_prints_a_script(models: FakeNode, shell: str):
    assert f"_FORNADA_COMPLETE={shell}_source fornada" in commands.page()
    assert f"{shell}_complete" in ask(f"{shell}_source", models.url)


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
def test_a_real_bash_completes_a_model(models: FakeNode, tmp_path: Path):
    (tmp_path / "fornada").write_text(f'#!/bin/sh\nexec {COMMAND} "$@"\n')
    (tmp_path / "fornada").chmod(0o755)
    outer, inner = pty.openpty()
    env = {**os.environ, "FORNADA_URL": models.url, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PS1": "$ ", "TERM": "dumb"}
    shell = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"], stdin=inner, stdout=inner, stderr=inner, env=env, start_new_session=True
    )
    os.close(inner)
    try:
        os.write(outer, b'eval "$(_FORNADA_COMPLETE=bash_source fornada)" && echo rea""dy\n')
        until(outer, r"\nready")
        for typed, shown in (
            (b"fornada run @a/t\t", r"fornada run @a/two:x "),
            (b"fornada versions @cf\t", r"fornada versions @cf/x/one "),
        ):
            os.write(outer, typed)
            until(outer, shown)
            os.write(outer, b"\x15")
    finally:
        shell.kill()
        shell.wait()
        os.close(outer)


def until(terminal: int, pattern: str) -> None:
    seen, deadline = "", time.monotonic() + bound(20)
    while not re.search(pattern, seen):
        assert time.monotonic() < deadline, seen
        if select.select([terminal], [], [], 0.1)[0]:
            seen += os.read(terminal, 65536).decode("utf-8", "replace")


def test_a_node_that_does_not_answer_is_not_waited_for(node: FakeNode):
    over = threading.Event()

    def slow(_: object) -> Said:
        over.wait(bound(20))
        return say({"models": [model("@a/late")]})

    node.on("GET", "/api/v1/models", slow)
    try:
        assert ask("zsh_complete", node.url, COMP_WORDS="fornada run @", COMP_CWORD="2") == ""
    finally:
        over.set()
