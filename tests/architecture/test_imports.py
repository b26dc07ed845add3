"""Import rules that import-linter can't express: the standard library alone, and folders that explain themselves."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import REPOSITORY, SRC, files, imports, imports_at_load, name_of, tree
from tests.bounds import bound

# What a model's environment may bring, and the SDK uses where it is there: inside functions only.
BROUGHT_BY_THE_MODEL = {"numpy", "PIL", "msgspec"}


def test_the_keeper_imports_the_wire_the_sandbox_and_the_standard_library_alone():
    allowed = sys.stdlib_module_names | {"fornada_sdk"}
    for path in files("fornada/keeper"):
        for line, name in imports(tree(path)):
            own = name.split(".")[:2] == ["fornada", "keeper"] or name == "fornada"
            assert own or name.split(".")[0] in allowed, f"{name_of(path)}:{line} imports {name}"
            ours = name.startswith(("fornada_sdk.wire", "fornada_sdk.sandbox"))
            assert not name.startswith("fornada_sdk.") or ours, f"{name_of(path)}:{line} imports {name}"


def test_the_sdk_loads_with_the_standard_library_alone():
    for path in files("fornada_sdk"):
        for line, name in imports_at_load(tree(path)):
            root = name.split(".")[0]
            assert root in sys.stdlib_module_names or root == "fornada_sdk", f"{name_of(path)}:{line} imports {name}"


def test_the_sdk_imports_a_models_libraries_in_its_engines_alone():
    allowed = sys.stdlib_module_names | {"fornada_sdk"} | BROUGHT_BY_THE_MODEL
    for path in files("fornada_sdk"):
        if name_of(path).startswith("fornada_sdk/runner/engines/"):
            continue
        for line, name in imports(tree(path)):
            assert name.split(".")[0] in allowed, f"{name_of(path)}:{line} imports {name}"


def python_3_9() -> str | None:
    found = [shutil.which("python3.9"), *sorted(map(str, Path.home().glob(".pyenv/versions/3.9.*/bin/python3")))]
    for path in filter(None, found):
        if subprocess.run([path, "-c", "import sys; sys.exit(sys.version_info[:2] != (3, 9))"], capture_output=True).returncode == 0:
            return path
    return None


def test_every_module_of_the_sdk_can_be_imported_by_python_3_9():
    python = python_3_9()
    if python is None:
        pytest.skip("no Python 3.9 on this machine; `make check` still asks vermin")
    modules = [name_of(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in files("fornada_sdk")]
    code = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"
    done = subprocess.run(
        [python, "-B", "-W", "error", "-c", code, *(name for name in modules if not name.endswith("__main__"))],
        env={"PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        timeout=bound(30),
    )
    assert done.returncode == 0, done.stderr


def test_no_asgi_type_passes_the_server():
    for path in files("fornada"):
        if name_of(path).startswith(("fornada/edge/server.py", "fornada/edge/server/")):
            continue
        for line, name in imports(tree(path)):
            assert name.split(".")[0] not in ("starlette", "uvicorn"), f"{name_of(path)}:{line} imports {name}"


@pytest.mark.parametrize("init", [path for path in files(".") if path.name == "__init__.py"], ids=name_of)
def test_every_folder_says_what_it_is_for_what_comes_in_what_goes_out_and_what_it_may_import(init):
    if name_of(init) in ("fornada_sdk/__init__.py",):
        return  # its docstring is for the authors of models
    lines = (ast.get_docstring(tree(init)) or "").splitlines()
    assert lines and lines[0].endswith("."), f"{name_of(init)} has no docstring"
    for word in ("In: ", "Out: ", "May import: "):
        assert any(line.startswith(word) for line in lines), f"{name_of(init)} doesn't say {word!r}"


def test_every_package_folder_is_a_package():
    for path in files("fornada") + files("fornada_sdk"):
        assert (path.parent / "__init__.py").exists(), f"{path.parent.relative_to(REPOSITORY)} has no __init__.py"


def test_grpc_is_imported_only_where_there_is_a_port():
    program = "import sys, fornada.app.control; sys.exit(any(name.split('.')[0] in ('grpc', 'google') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], timeout=bound(60), check=False).returncode == 0
