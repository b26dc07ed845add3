"""The tree as a product: versions that agree, locks without addresses, a Makefile that says what it can do."""

import ast
import re
import tomllib

import pytest

from tests.architecture.sources import REPOSITORY, SRC

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
SDK = tomllib.loads((REPOSITORY / "packaging/sdk/pyproject.toml").read_text())
LOCKS = sorted((REPOSITORY / "locks").glob("*.txt"))


def requirements(name: str) -> dict[str, str]:
    lines = (REPOSITORY / "locks" / name).read_text().splitlines()
    return {line.split("==")[0]: line.rstrip(" \\") for line in lines if not line.startswith(" ")}


def test_one_version_everywhere():
    version = PROJECT["project"]["version"]
    (assigned,) = [
        node.value.value
        for node in ast.walk(ast.parse((SRC / "fornada/__init__.py").read_text()))
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and ast.unparse(node.targets[0]) == "__version__"
    ]
    assert assigned == version
    assert SDK["project"]["version"] == version
    assert f"fornada-sdk=={version}" in PROJECT["project"]["dependencies"]


def test_the_sdk_needs_nothing_but_python():
    assert SDK["project"]["dependencies"] == []


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_a_lock_holds_hashes_and_no_address(lock):
    text = lock.read_text()
    assert "://" not in text
    assert not re.search(r"^\s*(-i|--index-url|--extra-index-url|-f|--find-links|-e|#)", text, re.MULTILINE)
    for block in re.split(r"\n(?! )", text.strip()):
        assert re.fullmatch(r"[\w.-]+==\S+( ; [^\\]+)? \\(\n +--hash=sha256:[0-9a-f]{64}( \\)?)+", block), block


@pytest.mark.parametrize("group", ["build", "runtime", "dev"])
def test_a_lock_names_everything_that_the_project_asks_for(group):
    groups = PROJECT["dependency-groups"]
    runtime = PROJECT["project"]["dependencies"]
    asked = {"build": groups["build"], "runtime": runtime, "dev": runtime + groups["dev"] + groups["build"]}[group]
    names = {re.split(r"[<>=\[ ]", wish)[0] for wish in asked} - {"fornada-sdk"}
    assert names <= requirements(f"{group}.txt").keys()


def test_a_package_has_one_version_in_all_locks():
    dev = requirements("dev.txt")
    for name in ("build.txt", "runtime.txt"):
        for package, pinned in requirements(name).items():
            assert dev[package].split(" ;")[0] == pinned.split(" ;")[0]


def test_every_command_of_the_makefile_is_listed_by_its_help():
    text = (REPOSITORY / "Makefile").read_text()
    phony = set(re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)[1].split()) - {"moved"}  # type: ignore[index]
    assert set(re.findall(r"^([a-z-]+):.*## ", text, re.MULTILINE)) == phony
