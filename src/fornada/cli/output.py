"""What the commands print on stdout: tables on a terminal, plain columns elsewhere, JSON on request."""

import json
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from fornada.cli.printable import escaped, printable

STATE_COLOURS = {"ready": "green", "pending": "yellow", "asleep": "cyan", "stopping": "yellow", "stopped": "dim", "failed": "red"}
WIDEST = 60
"""Characters of a cell where no terminal says how much room there is."""
NARROWEST = 20
"""Columns in which words are still broken; with fewer the terminal may do it."""
GAP = 2


def print_json(value: Any) -> None:
    """One JSON value: indented for eyes, on one line for programs."""
    click.echo(json_text(value, indent=2 if sys.stdout.isatty() else None))


def print_json_line(value: Any) -> None:
    """One item of a sequence that is printed while it comes: always one line."""
    click.echo(json_text(value))


def json_text(value: Any, *, indent: int | None = None) -> str:
    """JSON without a character that a terminal would obey: json.dumps leaves some that lie beyond ASCII."""
    return escaped(json.dumps(value, ensure_ascii=False, indent=indent))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, empty: str, spare: Sequence[str] = ()) -> None:
    """`empty` is said where there is no row. A column named `state` is coloured on a terminal.

    `spare`: columns that a terminal without room for all of them goes without, the first one first.
    """
    safe = [[printable(cell) for cell in row] for row in rows]
    if not rows:
        click.echo(empty)
    elif sys.stdout.isatty():
        _print_rich(*fitted(columns, safe, spare, terminal_width()))
    else:
        _print_plain(columns, safe)


def shorten(text: str, width: int = WIDEST) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def ago(time: str | None, *, now: datetime | None = None) -> str:
    """`3 min ago` for an RFC 3339 time, `never` for None."""
    if not time:
        return "never"
    try:
        then = datetime.fromisoformat(time)
    except ValueError:
        return time
    then = then if then.tzinfo else then.replace(tzinfo=UTC)
    seconds = ((now or datetime.now(UTC)) - then).total_seconds()
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit} ago"
    return f"{max(seconds, 0):.0f} s ago"


def version_digits(version: str | None) -> str:
    """The twelve digits by which a version can be named."""
    return (version or "")[:12]


def bytes_text(count: Any) -> str:
    from fornada.core.resources import format_size

    if not isinstance(count, int) or count <= 0:
        return "-"
    number, unit = format_size(count).split()
    return f"{float(number):.0f} {unit}" if float(number) >= 100 else f"{number} {unit}"  # a tenth of that says nothing


def terminal_width() -> int:
    return shutil.get_terminal_size().columns


def hanging(text: str, *, indent: int) -> str:
    """Text that begins at column `indent`: on a terminal its further lines begin there too, and break between words."""
    room = terminal_width() - indent
    if not sys.stdout.isatty() or room < NARROWEST:
        return text
    return f"\n{' ' * indent}".join(textwrap.wrap(text, room, break_on_hyphens=False)) or text


def key_values(pairs: Mapping[str, Any]) -> None:
    """`key: value`, aligned; empty values are left out."""
    shown = {key: value for key, value in pairs.items() if value not in (None, "", [], {})}
    width = max((len(key) for key in shown), default=0)
    for key, value in shown.items():
        click.echo(f"{key:<{width}}  {hanging(printable(str(value)), indent=width + 2)}")


def _print_plain(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    lines = [tuple(column.upper() for column in columns), *(tuple(" ".join(cell.split()) for cell in row) for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        click.echo("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())


def fitted(
    columns: Sequence[str], rows: Sequence[Sequence[str]], spare: Sequence[str], room: int
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Without as many of the `spare` columns as it takes to fit into `room` cells."""
    from rich.cells import cell_len

    widths = {name: max(cell_len(name), *(cell_len(row[place]) for row in rows)) for place, name in enumerate(columns)}
    kept = list(columns)
    for name in spare:
        if sum(widths[each] for each in kept) + GAP * (len(kept) - 1) <= room:
            break
        kept.remove(name)
    return kept, [[cell for name, cell in zip(columns, row, strict=True) if name in kept] for row in rows]


def _print_rich(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.upper(), overflow="fold", no_wrap=column in ("pid", "state", "version"))
    for row in rows:
        cells = [
            Text(cell, STATE_COLOURS.get(cell, "")) if name == "state" else Text(cell) for name, cell in zip(columns, row, strict=True)
        ]
        table.add_row(*cells)
    Console().print(table)
