"""Our own source files as syntax trees, for tests about where things may stand."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SRC = REPOSITORY / "src"


def is_model_code(path: Path) -> bool:
    """Code of a model (the catalogue's, the probe's): it runs in a runner, and may do what strangers' code may do."""
    name = path.relative_to(SRC).as_posix()
    return name == "fornada/testing/probe/model.py" or (name.startswith("fornada/models/") and name.count("/") > 2)


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def files(folder: str) -> list[Path]:
    """Our own modules below `folder` (of src), without the code of models."""
    return [path for path in sorted((SRC / folder).rglob("*.py")) if not is_model_code(path)]


def name_of(path: Path) -> str:
    return path.relative_to(SRC).as_posix()


def imports(module: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of everything that is imported; `from a import b` gives `a` and `a.b`."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def imports_at_load(module: ast.Module) -> Iterator[tuple[int, str]]:
    """The same, for imports that run when the module is imported: not those inside a function."""
    pending: list[ast.AST] = [module]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from imports(node)
        pending.extend(ast.iter_child_nodes(node))


def dotted(node: ast.AST) -> str:
    """`os.path.join` for that expression, "" for anything that isn't a plain dotted name."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])
