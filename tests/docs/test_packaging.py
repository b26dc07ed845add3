"""The units and the Containerfile: what the page shows is what lies there, and what they name exists."""

import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from fornada.cli.main import fornada

REPOSITORY = Path(__file__).parents[2]
UNITS = sorted((REPOSITORY / "packaging/systemd").iterdir())
CONTAINERFILE = (REPOSITORY / "packaging/container/Containerfile").read_text()
PAGE = (REPOSITORY / "docs/how-to/run-as-a-service.md").read_text()


def test_the_page_shows_the_unit_that_lies_there():
    assert f"```ini\n{(REPOSITORY / 'packaging/systemd/fornada.service').read_text()}```" in PAGE


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd isn't installed here")
def test_systemd_takes_the_units(tmp_path: Path):
    for unit in UNITS:
        # The one thing that can't be there: what the page installs.
        (tmp_path / unit.name).write_text(unit.read_text().replace("/opt/fornada/.venv/bin/fornada", "/bin/true"))
    for unit in UNITS:
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(tmp_path / unit.name)], capture_output=True, text=True, timeout=60, check=False
        )
        said = [line for line in done.stderr.splitlines() if str(tmp_path) in line or unit.name in line]
        assert not said, said


def test_what_the_files_start_could_be_typed():
    lines = [words.split() for unit in UNITS for words in re.findall(r"\.venv/bin/fornada ([^\n\"']+)", unit.read_text())]
    (command,) = re.findall(r"^CMD \[(.*)\]$", CONTAINERFILE, re.MULTILINE)
    lines.append(re.findall(r'"([^"]*)"', command))
    assert {line[0] for line in lines} == {"serve", "backup"} and len(lines) == 3
    for name, *options in lines:
        found = fornada.get_command(click.Context(fornada), name)
        assert found is not None
        known = {option for parameter in found.params for option in parameter.opts}
        assert {option for option in options if option.startswith("--")} <= known


def test_what_the_image_copies_is_there_and_not_ignored():
    ignored = (REPOSITORY / ".dockerignore").read_text().split()
    copied = [name for line in re.findall(r"^COPY (.+) \S+$", CONTAINERFILE, re.MULTILINE) for name in line.split()]
    assert copied
    for name in copied:
        assert (REPOSITORY / name).exists(), name
        assert f"!{name}" in ignored, name
