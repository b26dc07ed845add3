"""Which Python a model gets."""

import sys

import pytest

from fornada.core.errors import InvalidSpec
from fornada.node.provision.builds import Builds
from fornada.node.provision.interpreters import Interpreters

OWN = ".".join(map(str, sys.version_info[:2]))
ANSWER = """#!/bin/sh
echo '["{version}", "fake {version}", "x86_64", "glibc 2"]'
"""


@pytest.fixture
def machine(tmp_path, keeper):
    """Interpreters of a machine whose PATH and home lie in tmp_path."""
    return lambda: Interpreters(
        Builds(keeper, tmp_path / "logs"), search_path=f"{tmp_path}/bin:{tmp_path}/shims", home=str(tmp_path / "home")
    )


def put(tmp_path, path, version):
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(ANSWER.format(version=version) if version else "#!/bin/sh\nexit 127\n")
    file.chmod(0o755)


async def test_the_nodes_own_serves_whoever_asks_for_it_or_for_none_and_nobody_is_asked(machine, keeper):
    found = machine()
    for version in ("", OWN, ".".join(map(str, sys.version_info[:3]))):
        assert await found.find(version) == found.own
    assert keeper.asked == []


async def test_another_is_found_on_the_path_in_pyenv_and_where_uv_installs(machine, tmp_path):
    put(tmp_path, "bin/python3.97", "3.97.1")
    put(tmp_path, "home/.pyenv/versions/3.98.2/bin/python3.98", "3.98.2")
    put(tmp_path, "home/.local/share/uv/python/cpython-3.99.3-linux-x86_64-gnu/bin/python3.99", "3.99.3")
    found = machine()
    for version, exact in (("3.97", "3.97.1"), ("3.98", "3.98.2"), ("3.98.2", "3.98.2"), ("3.99", "3.99.3")):
        assert (await found.find(version)).version == exact
    assert await found.there() == sorted(
        [found.own.version, "3.97.1", "3.98.2", "3.99.3"], key=lambda one: [int(part) for part in one.split(".")]
    )


async def test_the_newest_of_several_is_taken_and_each_is_asked_once(machine, tmp_path, keeper):
    put(tmp_path, "bin/python3.97", "3.97.1")
    put(tmp_path, "home/.pyenv/versions/3.97.11/bin/python3.97", "3.97.11")
    found = machine()
    assert (await found.find("3.97")).version == "3.97.11"
    assert (await found.find("3.97.1")).version == "3.97.1"
    assert len(keeper.asked) == 2


async def test_what_is_broken_too_old_or_a_shim_does_not_count(machine, tmp_path):
    put(tmp_path, "bin/python3.97", "")
    put(tmp_path, "shims/python3.97", "3.97.1")
    put(tmp_path, "bin/python3.8", "3.8.10")
    found = machine()
    with pytest.raises(InvalidSpec, match=rf'"3\.97" isn\'t on this machine; there are {found.own.version}$'):
        await found.find("3.97")
    with pytest.raises(InvalidSpec, match=r"3\.9 or newer"):
        await found.find("3.8")
