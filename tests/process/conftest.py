"""A tree in both forms: with a pid namespace (root only) and without."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process.tree import Tree

FORMS = [pytest.param(True, id="namespace", marks=pytest.mark.skipif(os.geteuid() != 0, reason="a pid namespace needs root")), False]


@pytest.fixture(params=FORMS)
def nested(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def start(tmp_path: Path, nested: bool) -> Iterator[Callable[..., Tree]]:
    """Starts a tree in the form of this run; whatever is left is ended after the test."""
    trees: list[Tree] = []

    def _start(**options: Any) -> Tree:
        trees.append(Tree(tmp_path, **{"nested": nested, **options}))
        return trees[-1]

    yield _start
    for tree in trees:
        tree.end()


@pytest.fixture
def tree(start: Callable[..., Tree]) -> Tree:
    """A running tree."""
    return start()
