"""Names files outside of its folder in model.toml, and itself by a path."""

from collections.abc import Iterator

from tests.security.attacks.verdict import Told

WALL = "400: names are checked where they come in"

DIGEST = "0" * 64
OUT = ("../../out", "/etc/out", "a/../../out", "a/./../../out", "..", ".", "a//../../out")
MODEL = "def handle_request(request, context):\n    return {}\n"
TABLES = {
    "artifact": '[[artifacts]]\npath = "{}"\nsha256 = "' + DIGEST + '"\nsource = ["https://127.0.0.1:1/x"]\n',
    "entry": '[python]\nentry = "{}"\n',
    "schema": '[schema]\ninput = "{}"\n',
    "convert": '[[artifacts]]\npath = "x"\nsha256 = "' + DIGEST + '"\nsource = ["https://127.0.0.1:1/x"]\nconvert = {{ script = "{}" }}\n',
}
NAMES = ("@attack/../../etc", "@attack/%2e%2e/%2e%2e/etc", "..", "@attack/a%00b", "@attack/..")


def bundles(told: Told) -> Iterator[tuple[str, str, dict[str, str]]]:
    """(what, name in the path, files) of each deploy that must be refused."""
    for what, table in TABLES.items():
        for path in OUT:
            yield f"{what} {path!r}", "@attack/out", {"model.toml": table.format(path), "model.py": MODEL}
    for name in NAMES:
        yield f"name {name!r}", name, {"model.toml": "", "model.py": MODEL}
