"""At which level models are kept apart is said wherever an operator looks, and as it is: by a node's own record, its API and its metrics."""

from fornada.keeper.levels import Level
from tests.harness.fixtures import StartNode
from tests.harness.node import Node
from tests.harness.waiting import until


def shown(node: Node) -> set[str]:
    """In every place."""
    (entry,) = node.fetch("GET", "/api/v1/nodes").json()["nodes"]
    (sample,) = node.metrics().of("fornada_isolation_info")
    assert sample.value == 1
    until(lambda: "isolation: " in node.stdout.read_text(), within_s=10, what="the ready line")
    said = node.stdout.read_text().partition("isolation: ")[2].partition(")")[0]
    return {sample.labels["level"], entry["isolation"], node.record["isolation"], said}


def test_auto_is_shown_as_the_level_that_it_came_to(node: Node):
    (level,) = shown(node)
    assert level in {Level.FULL, Level.NAMESPACES, Level.LANDLOCK}


def test_none_is_shown_where_it_was_asked_for(new_node: StartNode):
    node = new_node(flags=["--isolation", "none"]).start()
    assert shown(node) == {"none"}
