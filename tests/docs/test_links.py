"""Every link between pages leads somewhere; every page can be reached from the first."""

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, PAGES, anchors, links, name


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_to_files_and_headings_that_exist(page: Path):
    for link in links(page):
        if "://" in link or link.startswith("mailto:"):
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{name(page)} links to {target}"
        if anchor:
            assert anchor in anchors(path), f"{name(page)} links to {link}; headings there are {sorted(anchors(path))}"


def test_every_page_of_the_docs_is_reached_from_the_index():
    reached: set[Path] = set()
    pending = [DOCS / "README.md"]
    while pending:
        page = pending.pop()
        if page in reached:
            continue
        reached.add(page)
        targets = [(page.parent / link.partition("#")[0]).resolve() for link in links(page) if "://" not in link]
        pending += [target for target in targets if target.suffix == ".md" and DOCS in target.parents]
    assert reached == set(DOCS.rglob("*.md"))
