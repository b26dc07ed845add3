"""Which client asks which route: docs/reference/clients.md, out of what `make clients` saw when the clients ran.

`python -m docs.generate.clients FOLDER` puts the notes of such a run into clients.json, which the page is made from.
"""

import json
import re
import sys
from pathlib import Path

from docs.generate.markdown import code, table

SEEN = Path(__file__).with_name("clients.json")
INTRODUCTION = """\
# Routes and clients

Clients that were run, unchanged, against a node, and the routes that each of them asked: an `x` means that a test in which it does so
passes, by the client's own documentation. `make clients` runs them all again. Routes that no client asked are left out; all are in
`/openapi.json`, and are tested without a client as well.

"""


SECTIONS = (
    ("Workers AI", r"/client/v4/(?!accounts/[^/]+/(?:ai/v1/|ai-gateway))"),
    ("The binding of Workers", r"/binding/"),
    ("AI Gateway", r"/gateway/|/client/v4/accounts/[^/]+/ai-gateway"),
    ("OpenAI, Anthropic, TensorFlow Serving", r"/v1/|/client/v4/accounts/[^/]+/ai/v1/"),
    ("Open Inference Protocol", r"/v2(?:/|\\Z)"),
    ("The node", r"/(?:api/|health/|metrics|openapi|docs|\\Z)"),
)
"""Title, and the paths of its routes."""


def page() -> str:
    noted = json.loads(SEEN.read_text(encoding="utf-8"))
    seen: dict[str, set[str]] = {}
    for route, client in noted["seen"]:
        seen.setdefault(route, set()).add(client)
    clients = sorted({client for _, client in noted["seen"]}, key=str.casefold)
    parts = [INTRODUCTION]
    for title, expression in SECTIONS:
        paths = re.compile(expression)
        routes = sorted((route for route in seen if paths.match(route.partition(" ")[2])), key=lambda route: route.split(" ")[::-1])
        used = [client for client in clients if any(client in seen[route] for route in routes)]
        if routes:
            rows = [[code(route), *("x" if client in seen[route] else "" for client in used)] for route in routes]
            parts.append(f"## {title}\n\n{table(['route', *used], rows)}\n")
    return "".join(parts).rstrip("\n") + "\n"


def gather(folder: Path) -> None:
    """Puts what the test processes noted into one file. Raises SystemExit for a client or a route that nobody knows."""
    notes = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    seen = sorted({(route, client) for note in notes for route, client in note["seen"]})
    unknown = sorted({agent for note in notes for agent in note["unknown"]} - {""})  # the runtime of Workers looks around without a name
    undescribed = sorted({route for route, _ in seen if route.endswith("(not described)")})
    if unknown or undescribed or not seen:
        raise SystemExit(
            f"clients that nobody knows: {unknown}; routes that /openapi.json doesn't tell of: {undescribed}; seen: {len(seen)}"
        )
    SEEN.write_text(json.dumps({"seen": seen}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    gather(Path(sys.argv[1]))
