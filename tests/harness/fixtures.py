"""Fixtures of the black-box tests. A conftest.py that wants them imports them by name."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.node import Node

_shared: list[Node] = []
_numbers: dict[str, int] = {}

StartNode = Callable[..., Node]
Probe = Callable[..., str]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A failing test shows what the nodes that run said."""
    report = yield
    if report.failed and report.when in ("call", "setup"):  # type: ignore[attr-defined]
        for node in Node.live:
            report.sections.append((f"node in {node.directory}", node.said()))  # type: ignore[attr-defined]
    return report


@pytest.fixture(scope="session")
def shared_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Node]]:
    """The node that tests share while it is well; one that isn't is replaced, so that one failure doesn't become fifty."""

    def current() -> Node:
        if _shared and not _shared[-1].alive():
            _shared.pop().destroy()
        if not _shared:
            _shared.append(Node(tmp_path_factory.mktemp("node")).start())
        return _shared[-1]

    yield current
    while _shared:
        node = _shared.pop()
        try:
            assert node.stop() == 0, f"the shared node ended badly\n{node.said()}"
        finally:
            node.destroy()


@pytest.fixture
def node(shared_node: Callable[[], Node]) -> Iterator[Node]:
    """A running node, shared with other tests. Models deployed through it are removed after the test."""
    current = shared_node()
    yield current
    if current.running:
        current.forget_models()


@pytest.fixture
def new_node(tmp_path: Path) -> Iterator[StartNode]:
    """Makes nodes of the test's own: `new_node(config=..., flags=..., environ=..., prefix=...)`, not started yet. They are ended with the test."""
    made: list[Node] = []

    def make(name: str = "node", *, kind: type[Node] = Node, **settings: Any) -> Node:
        made.append(kind(tmp_path / name, **settings))
        return made[-1]

    yield make
    for node in made:
        node.destroy()


@pytest.fixture
def own_node(new_node: StartNode) -> Iterator[Node]:
    """A running node of the test's own, with the settings of the shared one; it must end well."""
    node = new_node().start()
    yield node
    if node.running:
        assert node.stop() == 0, node.said()


@pytest.fixture
def fresh_name(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Names of models that no other test uses."""
    slug = request.path.stem.removeprefix("test_").replace("_", "-")[:40]

    def name() -> str:
        _numbers[slug] = _numbers.get(slug, 0) + 1
        return f"@test/{slug}-{_numbers[slug]}"

    return name


@pytest.fixture
def probe(node: Node, fresh_name: Callable[[], str]) -> Callable[..., str]:
    """Deploys a changed copy of the probe on the shared node: `probe(settings=..., serving=..., resources=...)` is its name."""

    def deploy(**tables: Any) -> str:
        name = fresh_name()
        node.deploy_probe(name, **tables)
        return name

    return deploy
