"""The documentation's Markdown: its pages, their blocks of code, their links."""

import re
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *(REPOSITORY / "examples").rglob("*.md"), *REPOSITORY.glob("*.md")])
WRITTEN = [page for page in PAGES if DOCS / "reference" not in page.parents]
"""What people write; the reference is made from the code."""
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A block of code: its language, the words behind it, its text."""

    language: str
    words: tuple[str, ...]
    text: str


def name(page: Path) -> str:
    return page.relative_to(REPOSITORY).as_posix()


def blocks(page: Path) -> list[Block]:
    found = []
    for info, text in FENCE.findall(page.read_text(encoding="utf-8")):
        language, *words = info.split() or [""]
        found.append(Block(language, tuple(words), text))
    return found


def prose(page: Path) -> str:
    """The page without its blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def inline_code(page: Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", prose(page))


def links(page: Path) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", prose(page))


def anchors(page: Path) -> set[str]:
    """What GitHub makes of the headings."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
