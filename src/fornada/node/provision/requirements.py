"""What a model asks of the package index: parsed strictly, because each line would be obeyed by a resolver.

Names and versions from an index are all that is taken. Options, addresses, paths and repositories are refused with the line
that holds them: each of them would let a model choose where its packages come from, or run code on the host at build time.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fornada.core.errors import InvalidSpec
from fornada.core.ports import BundleFile
from fornada.core.specs import ModelSpec

REQUIREMENTS_FILE = "requirements.txt"
ARCHIVES = (".whl", ".zip", ".tar", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst", ".tgz", ".tbz", ".txz", ".egg")
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_CLAUSE = r"(?:===|==|~=|!=|<=|>=|<|>)\s*[A-Za-z0-9.*+!_-]+"
_CLAUSES = rf"{_CLAUSE}(?:\s*,\s*{_CLAUSE})*"
_REQUIREMENT = re.compile(
    rf"({_NAME})\s*(\[\s*(?:{_NAME}(?:\s*,\s*{_NAME})*)?\s*\])?\s*(?:({_CLAUSES})|\(\s*({_CLAUSES})\s*\))?\s*(;[ \w.'\"<>=!~(),+*-]+)?",
    re.ASCII,
)
_DIGITS_MOST = 9
"""Of one number in a version."""
_ONE_CLAUSE = re.compile(r"(===|==|~=|!=|<=|>=|<|>)\s*([A-Za-z0-9.*+!_-]+)")


class Requirement(NamedTuple):
    """One line, e.g. `numpy[extra]>=1.26 ; python_version < "3.13"`."""

    name: str
    """Normalised (PEP 503): lower case, runs of `-_.` as one `-`."""
    text: str
    """What the resolver is given."""
    pinned: str
    """The version of a single `==`, else empty."""


class Script(NamedTuple):
    """A PEP 723 header."""

    dependencies: tuple[str, ...]
    requires_python: str


class Asked(NamedTuple):
    """What a model asks for, its engine's own needs not included."""

    requirements: tuple[Requirement, ...]
    requires_python: str = ""


def asked_by(spec: ModelSpec, files: Mapping[str, BundleFile]) -> Asked:
    """[python] dependencies; where there are none, requirements.txt; where there is none, the entry's PEP 723 header. Raises InvalidSpec."""
    if spec.python.dependencies:
        return Asked(parse_requirements(spec.python.dependencies, where="model.toml: [python] dependencies"))
    if REQUIREMENTS_FILE in files:
        lines = _text(files, REQUIREMENTS_FILE).splitlines()
        return Asked(parse_requirements(lines, where=REQUIREMENTS_FILE))
    entry = spec.python.entry
    if entry in files:
        script = script_header(_text(files, entry), where=entry)
        return Asked(parse_requirements(script.dependencies, where=f"{entry}: dependencies"), script.requires_python)
    return Asked(())


def parse_requirements(lines: Iterable[str], *, where: str) -> tuple[Requirement, ...]:
    """Requirements in order, comments and empty lines left out. Raises InvalidSpec that names place and line."""
    found = []
    for number, line in enumerate(lines, start=1):
        # One space for any run of them: the pattern would try every way to share out a stranger's thousand spaces.
        text = " ".join(re.sub(r"(^|\s)#.*", "", line).split())
        if text:
            found.append(_requirement(text, f"{where}, line {number}" if where == REQUIREMENTS_FILE else where))
    return tuple(found)


def _requirement(text: str, where: str) -> Requirement:
    match = _REQUIREMENT.fullmatch(text)
    # "x-1.0.tar.gz" could be a name, and would be read as a file.
    if not match or match[1].lower().endswith(ARCHIVES):
        raise InvalidSpec(f"{where}: '{_short(text)}' is refused: {_why_refused(text)}")
    name, extras, plain, bracketed, marker = match.groups()
    clauses = plain or bracketed or ""
    single = _ONE_CLAUSE.fullmatch(clauses.strip())
    pinned = single[2] if single and single[1] in ("==", "===") and "*" not in single[2] else ""
    return Requirement(normalised(name), f"{name}{extras or ''}{clauses}{' ' + marker if marker else ''}", pinned)


def _why_refused(text: str) -> str:
    if "--hash" in text or text.endswith("\\"):
        return "hashes belong into requirements.lock; here write NAME==VERSION"
    if text.startswith("-"):
        return "options would change where packages come from; the operator sets that in [provision]"
    if "://" in text or "git+" in text or text.startswith("file:") or re.search(r"\s@|@\s", text):
        return "packages come from the node's index by name and version, not from an address"
    if text.startswith((".", "/", "~")) or text.lower().endswith(ARCHIVES) or "/" in text or "\\" in text:
        return "a path to a package can't be locked; packages come from the node's index"
    return 'it is no requirement; write e.g. "numpy==2.4.6"'


def normalised(name: str) -> str:
    """A project's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def script_header(source: str, *, where: str) -> Script:
    """The `script` block of PEP 723, empty where there is none. Raises InvalidSpec for one that can't be read."""
    lines = source.splitlines()
    starts = [index for index, line in enumerate(lines) if line.rstrip() == "# /// script"]
    if not starts:
        return Script((), "")
    if len(starts) > 1:
        raise InvalidSpec(f"{where}: more than one '# /// script' header")
    content: list[str] = []
    end = None
    for index in range(starts[0] + 1, len(lines)):
        line = lines[index].rstrip()
        if line == "# ///":
            end = len(content)  # the last closing line of the comment block counts (PEP 723)
        if not line.startswith("#"):
            break
        content.append(line[2:] if line.startswith("# ") else line[1:])
    if end is None:
        raise InvalidSpec(f"{where}: the '# /// script' header has no closing '# ///'")
    try:
        table = tomllib.loads("\n".join(content[:end]))
    except (ValueError, RecursionError) as error:
        raise InvalidSpec(f"{where}: the '# /// script' header is no TOML: {error}") from None
    dependencies = table.get("dependencies", [])
    requires = table.get("requires-python", "")
    if not isinstance(dependencies, list) or not all(isinstance(item, str) for item in dependencies) or not isinstance(requires, str):
        raise InvalidSpec(f"{where}: in the '# /// script' header dependencies must be a list of strings and requires-python a string")
    return Script(tuple(dependencies), requires)


def allows_python(requires: str, version: str) -> bool:
    """Whether `requires` (">=3.11,<3.14") holds for a final release such as "3.11.7". What isn't understood is allowed: the resolver asks again."""
    return all(_holds(operator, bound, version) for operator, bound in _ONE_CLAUSE.findall(requires))


def _holds(operator: str, bound: str, version: str) -> bool:
    wildcard = bound.endswith(".*")
    numbers = bound.removesuffix(".*").split(".")
    if not all(part.isascii() and part.isdigit() and len(part) <= _DIGITS_MOST for part in numbers):
        return True
    wanted = [int(part) for part in numbers]
    given = [int(part) for part in version.split(".") if part.isdigit()]
    width = len(wanted) if wildcard else max(len(wanted), len(given))
    left = (given + [0] * width)[:width]
    right = (wanted + [0] * width)[:width]
    match operator:
        case "==" | "===":
            return left == right
        case "!=":
            return left != right
        case "~=":
            return left >= right and given[: len(wanted) - 1] == wanted[:-1]
        case ">=":
            return left >= right
        case "<=":
            return left <= right
        case ">":
            return left > right
        case _:
            return left < right


def _text(files: Mapping[str, BundleFile], path: str) -> str:
    try:
        return files[path].data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidSpec(f"{path} is not UTF-8") from None


def _short(text: str) -> str:
    return text if len(text) <= 100 else text[:97] + "..."
