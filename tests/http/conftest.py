"""A real node for the tests over HTTP."""

from tests.harness.chance import chance
from tests.harness.fixtures import fresh_name, new_node, node, own_node, probe, pytest_runtest_makereport, shared_node

__all__ = ["chance", "fresh_name", "new_node", "node", "own_node", "probe", "pytest_runtest_makereport", "shared_node"]
