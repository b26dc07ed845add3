"""python -m docs.generate [--check]"""

import sys
from collections.abc import Callable
from pathlib import Path

from docs.generate import catalogue, clients, commands, errors, metrics, model_toml, settings, states

REFERENCE = Path(__file__).resolve().parents[1] / "reference"
NOTICE = "<!-- Made by `python -m docs.generate` from the code; what is changed here is lost. -->\n\n"
PAGES: dict[str, Callable[[], str]] = {
    "catalogue.md": catalogue.page,
    "clients.md": clients.page,
    "commands.md": commands.page,
    "errors.md": errors.page,
    "metrics.md": metrics.page,
    "model-toml.md": model_toml.page,
    "settings.md": settings.page,
    "states.md": states.page,
}


def outdated() -> list[str]:
    """Pages that differ from what the code says now."""
    return [name for name, page in PAGES.items() if _read(REFERENCE / name) != NOTICE + page()]


def main() -> int:
    if "--check" in sys.argv[1:]:
        stale = outdated()
        for name in stale:
            sys.stdout.write(f"docs/reference/{name} is not what the code says; run python -m docs.generate\n")
        return 1 if stale else 0
    REFERENCE.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(NOTICE + page(), encoding="utf-8")
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
