"""What a person who starts a node is told."""

import io
from pathlib import Path

import pytest

from fornada.app import ready


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_start_tells_the_address_the_docs_and_the_way_in():
    out = io.StringIO()
    ready.announce("http://127.0.0.1:8250", Path("/srv/models"), "none", out)
    assert out.getvalue().splitlines() == [
        "Fornada is ready on http://127.0.0.1:8250  (data in /srv/models, isolation: none)",
        "  docs     http://127.0.0.1:8250/docs",
        "  account  local    token  any  (open mode: loopback only, no keys)",
    ]


def test_a_folder_below_the_current_one_is_named_from_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    out = io.StringIO()
    ready.announce("http://x", tmp_path / ".fornada", "none", out)
    assert "(data in .fornada, isolation" in out.getvalue()


def test_an_end_is_told_at_a_terminal_and_nowhere_else():
    terminal, pipe = Terminal(), io.StringIO()
    ready.farewell(30.0, terminal)
    ready.farewell(30.0, pipe)
    assert terminal.getvalue() == "\nStopping: what runs may end within 30 s. Ctrl-C again ends it at once.\n"
    assert pipe.getvalue() == ""
