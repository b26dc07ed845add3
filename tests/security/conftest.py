"""A real node for the tests of what must not be possible."""

from tests.harness.fixtures import fresh_name, new_node, node, own_node, probe, pytest_runtest_makereport, shared_node

__all__ = ["fresh_name", "new_node", "node", "own_node", "probe", "pytest_runtest_makereport", "shared_node"]
