"""The pages at the top of the repository: links lead somewhere, commands exist, folders are there."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = sorted(REPOSITORY.glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert "://" in target or (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_make_command_in_a_page_exists(page):
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    for line in page.read_text().splitlines():
        for command in re.findall(r"(?:^|`)make ([a-z-]+)", line):
            assert command in targets, f"{page.name} names `make {command}`"


def test_the_folder_table_is_the_tree():
    text = (REPOSITORY / "ARCHITECTURE.md").read_text()
    named = set(re.findall(r"^\| `(src/[^`]+)`", text, re.MULTILINE))
    packages = {path.parent.relative_to(REPOSITORY).as_posix() for path in REPOSITORY.glob("src/**/__init__.py")}
    assert named <= packages | {"src/fornada/models"}, "a folder that isn't there"
    assert {folder for folder in packages if folder.count("/") == 2 and folder.startswith("src/fornada/")} <= named
