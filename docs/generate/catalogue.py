"""docs/reference/catalogue.md from the models that ship with the package: their model.toml, and the figures in their README.md.

A figure is measured by hand and written into the model's own README.md; this page copies it, so that there is one place to mend.
"""

import re
import tomllib
from pathlib import Path
from typing import NamedTuple

from docs.generate.markdown import code, table
from fornada import models
from fornada.core.specs import ModelSpec, spec_from_table

FOLDERS = Path(models.__file__).parent
FROM_THE_PAGE = "../../src/fornada/models"

INTRODUCTION = """\
# The catalogue

Every node has these models. Each is a real, pre-trained one, whose weights come from a public package or repository when the model is first
needed, and are checked by their sha256. Ask one by its name, or by a name of Workers AI that it also answers to:

```sh
fornada run @fornada/coco-ssd --file picture.jpg --out found.png
```

A name of Workers AI stands for the same task with the same input and output, not for the same network: **what really runs is what this page says**,
and so does the catalogue's own answer (`fornada models NAME`). The link of each model leads to what it takes and gives, what it is good and bad
at, and where each of its files comes from.
"""
MEASURED = """\
## What each takes

Seen on one or two threads of a shared, busy x86-64 virtual machine, each model alone: orders of magnitude, not promises. *Disk* is the
environment with its packages, which models with the same packages share, on top of the weights. *Start* is from the start of the process until
the warm-up has passed, with environment and weights in place; *memory* is what the process then holds (RSS, of which PSS is its own
share). *One request* is all of it: reading the input, the network, the answer.
"""
ORIGIN = """\
## Where it comes from

The licence in the first table is the one that the model.toml declares. By part:
"""


class Figures(NamedTuple):
    """As the README has them, each cut to its first statement; `request` says what was asked."""

    weights: str
    disk: str
    start: str
    memory: str
    request: str


def page() -> str:
    found = entries()
    kinds = [(_link(folder, spec), spec.task, _aliases(spec), spec.description, spec.license) for folder, spec in found]
    measured = [(code(spec.name), *figures(readme(folder))) for folder, spec in found]
    origins = [(code(spec.name), what, origin, licence) for folder, spec in found for what, origin, licence in sources(readme(folder))]
    return "\n".join(
        [
            INTRODUCTION,
            table(["model", "task", "also answers to", "what really runs", "licence"], kinds),
            MEASURED,
            table(["model", "weights", "disk", "start", "memory", "one request"], measured),
            ORIGIN,
            table(["model", "what", "from where", "licence"], origins),
        ]
    )


def entries() -> list[tuple[Path, ModelSpec]]:
    """Every folder of the catalogue with its spec, by task and name."""
    declared = FOLDERS.glob("*/model.toml")
    found = [(path.parent, spec_from_table(tomllib.loads(path.read_text(encoding="utf-8")), default_name="")) for path in declared]
    return sorted(found, key=lambda entry: (entry[1].task, entry[1].name))


def readme(folder: Path) -> str:
    return (folder / "README.md").read_text(encoding="utf-8")


def figures(text: str) -> Figures:
    """From the table `| what | seen |`. Raises LookupError where a figure is missing."""
    rows = _rows(text, "what", "seen")
    named = {row[0]: row[1] for row in rows}
    memory = next((place for place, (what, _) in enumerate(rows) if what.startswith("memory when ready")), None)
    if memory is None or memory + 1 >= len(rows) or not {"weights", "environment", "process start to ready"} <= named.keys():
        raise LookupError(f"the README that begins {text[:40]!r} doesn't say weights, environment, start, memory and a request's time")
    what, seen = (re.split(r"; |, whole request", text)[0] for text in rows[memory + 1])
    return Figures(
        weights=_first(named["weights"]),
        disk=_first(named["environment"]),
        start=_first(named["process start to ready"]),
        memory=_match(r"[^;(]*?PSS", rows[memory][1]),
        request=f"{what}: {seen.partition(': ')[0]}",
    )


def sources(text: str) -> list[tuple[str, str, str]]:
    """From the table `| what | from where | licence |`, without the pictures and sounds of the examples."""
    found = [(row[0], row[1], row[2]) for row in _rows(text, "what", "from where", "licence")]
    return [row for row in found if "example/" not in row[0]]


def _rows(text: str, *columns: str) -> list[list[str]]:
    head = "| " + " | ".join(columns) + " |\n"
    found = []
    for line in text.partition(head)[2].splitlines()[1:]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip().strip("|").split("|")])
    return found


def _first(text: str) -> str:
    """The figure without what explains it: up to a semicolon, a bracket or a comma."""
    return re.split(r"[;(]|, | on disk", text)[0].strip()


def _match(pattern: str, text: str) -> str:
    found = re.match(pattern, text)
    if found is None:
        raise LookupError(f"{text!r} has no figure of the form {pattern}")
    return found[0]


def _aliases(spec: ModelSpec) -> str:
    return ", ".join(code(alias) for alias in spec.aliases)


def _link(folder: Path, spec: ModelSpec) -> str:
    return f"[{code(spec.name)}]({FROM_THE_PAGE}/{folder.name}/README.md)"
