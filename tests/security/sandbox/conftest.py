"""A cage in both forms: root's, and an ordinary user's in a user namespace of his own."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.security.sandbox.cage import Cage, cage, everybodys_python, ordinary_user

FORMS = [pytest.param("root", marks=pytest.mark.skipif(os.geteuid() != 0, reason="needs root")), "user"]


@pytest.fixture(scope="session")
def root_cage() -> Iterator[Cage]:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    yield from cage(None, everybodys_python() or os.path.realpath(sys.executable))


@pytest.fixture(scope="session")
def user_cage() -> Iterator[Cage]:
    python = everybodys_python()
    if python is None:
        pytest.skip("no Python that an ordinary user may execute")
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        pytest.skip("setpriv is missing")
    if subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "true"], capture_output=True).returncode != 0:
        pytest.skip("this machine allows no user namespaces")
    yield from cage(ordinary_user(), python)


@pytest.fixture(params=FORMS)
def caged(request: pytest.FixtureRequest) -> Cage:
    """Root's and the user's."""
    made: Cage = request.getfixturevalue(f"{request.param}_cage")
    return made
