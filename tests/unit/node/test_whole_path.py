"""Paths as walls take them: absolute, without `..`."""

from pathlib import Path

import pytest

from fornada.app.config import load
from fornada.node.whole_path import whole_path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a sibling `data` and a link `away` to somewhere else."""
    for name in ("here", "data", "far/away"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "here" / "away").symlink_to(tmp_path / "far" / "away")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path.resolve()


def test_what_lies_beside_the_working_directory_is_named_without_dots(folder: Path) -> None:
    assert whole_path("../data") == whole_path(folder / "here" / ".." / "data") == folder / "data"
    assert whole_path("new") == folder / "here" / "new"


def test_dots_behind_a_link_lead_where_the_kernel_goes(folder: Path) -> None:
    assert whole_path("away/../x") == folder / "far" / "x"
    assert whole_path("away/x") == folder / "here" / "away" / "x", "links without dots stay"


@pytest.mark.parametrize("by", ["flag", "variable"])
def test_a_data_directory_may_be_named_with_dots(folder: Path, by: str) -> None:
    flags, environ = ({"data_dir": "../data"}, {}) if by == "flag" else ({}, {"FORNADA_DATA_DIR": "../data"})
    assert load(None, flags, environ).data_dir == str(folder / "data")
