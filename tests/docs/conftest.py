"""A node for what the docs promise."""

from tests.harness.fixtures import node, pytest_runtest_makereport, shared_node

__all__ = ["node", "pytest_runtest_makereport", "shared_node"]
