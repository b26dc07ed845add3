"""What `fornada top` shows: from what a node tells to lines of styled text that fit a terminal. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from fornada.cli.output import STATE_COLOURS, bytes_text, fitted
from fornada.cli.printable import printable

Line = list[tuple[str, str]]
"""Pieces of text, each with a style; empty: none."""
Table = Mapping[str, Any]

COLUMNS = (
    *("model", "pid", "state", "device", "declared", "expected", "measured", "charged", "because"),
    *("in flight", "queued", "rps", "p50", "p99", "idle", "value", "kept"),
)
SPARE = (
    "p50",
    "declared",
    "because",
    "expected",
    "value",
    "rps",
    "idle",
    "kept",
    "device",
    "queued",
    "in flight",
    "p99",
    "pid",
    "measured",
)
"""Columns that a narrow terminal goes without, the first one first."""
RIGHT = frozenset({"pid", "declared", "expected", "measured", "charged", "in flight", "queued", "rps", "p50", "p99", "idle", "value"})
BAR = 24
PARTS = (("#", "green"), ("=", "cyan"), ("x", "red"), ("~", "yellow"))
"""Of a bar: used by models, charged beyond that, foreign, lingering. The rest is free."""
LEGEND = "# used by models  = promised to them  x others'  ~ coming back  . free"
EVICTIONS = 5
"""The last ones, where there is room for so many."""


def lines(found: Table, *, title: str, width: int | None, height: int | None) -> list[Line]:
    """`found`: devices, instances with their rates, waits, evictions and swap. None: no bound, nothing is left out."""
    head = [[(title, "bold")], *_devices(found), [(LEGEND, "dim")], []]
    table, waits, gone = _instances(found, width), _waits(found), _evictions(found)
    if height is not None:
        # The last evictions yield first, then who waits, then the rows of instances.
        room = height - len(head)
        gone = _cut(gone, room - len(table) - len(waits))
        waits = _cut(waits, room - len(table) - len(gone))
        table = _cut(table, room - len(waits) - len(gone))
    shown = [*head, *table, *waits, *gone]
    return [_clipped(line, width) for line in (shown if height is None else shown[:height])]


def plain(line: Line) -> str:
    return "".join(text for text, _ in line).rstrip()


def _devices(found: Table) -> list[Line]:
    devices = [device for device in found.get("devices", []) if isinstance(device, dict)]
    wide = max((len(str(device.get("id"))) for device in devices), default=0)
    shares = (found.get("swap") or {}).get("devices") or {}
    return [_device(device, wide, shares.get(device.get("id"))) for device in devices]


def _device(device: Table, wide: int, share: float | None) -> Line:
    total, charged, used, foreign, lingering = (
        int(device.get(f"{key}_bytes") or 0) for key in ("total", "reserved", "used", "foreign", "lingering")
    )
    own = max(0, used - lingering)
    parts = (own, max(0, charged - own), foreign, lingering)
    said = f" {_of(charged)} of {bytes_text(total)} charged, {_of(own)} used"
    said += f", {bytes_text(foreign)} others'" if foreign else ""
    said += f", {bytes_text(lingering)} coming back" if lingering else ""
    line = [(f"{printable(str(device.get('id'))):<{wide}} [", ""), *_bar(parts, total), ("]", ""), (said, "")]
    if share:
        line.append((f"; swapping {share:.0%} of the last minute", "bold red" if share > 0.5 else ""))
    if device.get("state") not in (None, "ok"):
        why = f" ({printable(str(device['fence']))})" if device.get("fence") else ""
        line.append((f"; {device['state']}{why}", "bold red"))
    return line


def _bar(parts: Sequence[int], total: int) -> Line:
    drawn: Line = []
    left, before = BAR, 0
    for count, (sign, style) in zip(parts, PARTS, strict=True):
        until = min(BAR, round((before + count) * BAR / total)) if total else 0
        cells = max(0, min(left, until - (BAR - left)))
        cells = max(cells, 1) if count and left else cells  # what is there is seen
        drawn.append((sign * cells, style))
        left, before = left - cells, before + count
    return [*(piece for piece in drawn if piece[0]), ("." * left, "dim")]


def _instances(found: Table, width: int | None) -> list[Line]:
    instances = [instance for instance in found.get("instances", []) if isinstance(instance, dict)]
    if not instances:
        return [[("nothing runs; 'fornada models' shows what could", "")]]
    instances.sort(key=lambda one: (str(one.get("device")), str(one.get("model")), str(one.get("id"))))
    columns: Sequence[str] = COLUMNS
    rows: Sequence[Sequence[str]] = [_row(instance) for instance in instances]
    if width is not None:
        columns, rows = fitted(columns, rows, SPARE, width)
    widths = [max(len(name), *(len(row[place]) for row in rows)) for place, name in enumerate(columns)]

    def line(cells: Sequence[str], styles: Sequence[str]) -> Line:
        aligned = (
            f"{cell:>{wide}}" if name in RIGHT else f"{cell:<{wide}}" for cell, wide, name in zip(cells, widths, columns, strict=True)
        )
        return [(f"{cell}  ", style) for cell, style in zip(aligned, styles, strict=True)]

    head = line([name.upper() for name in columns], ["bold"] * len(columns))
    states = [STATE_COLOURS.get(str(instance.get("state")), "") for instance in instances]
    return [head, *(line(row, [state if name == "state" else "" for name in columns]) for row, state in zip(rows, states, strict=True))]


def _row(instance: Table) -> list[str]:
    idle_s, value, rps = instance.get("idle_s"), instance.get("value"), instance.get("rps")
    return [
        printable(str(instance.get("model"))),
        str(instance.get("pid") or "-"),
        _state(instance),
        printable(str(instance.get("device") or "-")),
        *(bytes_text(instance.get(f"{key}_bytes")) for key in ("declared", "expected", "resident", "charged")),
        str(instance.get("because") or "-"),
        str(instance.get("in_flight", "-")),
        str(instance.get("queued", "-")),
        "-" if rps is None else f"{rps:.1f}",
        duration(instance.get("p50_s")),
        duration(instance.get("p99_s")),
        duration(idle_s) if idle_s else "-",
        f"{value:.2g}" if value else "-",
        "kept" if instance.get("kept") else "-",
    ]


def _state(instance: Table) -> str:
    state, step = str(instance.get("state")), str(instance.get("step") or "")
    return printable((f"{state}: {step}" if step and step != state else state) + (", parked" if instance.get("parked") else ""))


def duration(seconds: float | None) -> str:
    """Three digits, whatever the unit."""
    if seconds is None:
        return "-"
    if seconds >= 600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds * 1000:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s"


def _waits(found: Table) -> list[Line]:
    waits = [wait for wait in found.get("waits", []) if isinstance(wait, dict)]
    return _block(f"WAIT FOR ROOM ({len(waits)})", [_wait(wait) for wait in waits])


def _wait(wait: Table) -> Line:
    queued = wait.get("queued") or 0
    asked = f", {queued} request{'s' * (queued != 1)}" if queued else ""
    said = f"{bytes_text(wait.get('needs_bytes'))} for {duration(wait.get('waiting_s'))}{asked}: {wait.get('why')}"
    return [(f"{printable(str(wait.get('model')))}  ", "yellow"), (printable(said), "")]


def _evictions(found: Table) -> list[Line]:
    gone = [one for one in found.get("evictions", []) if isinstance(one, dict)]
    return _block("LAST EVICTIONS", [_eviction(one) for one in gone[:EVICTIONS]])


def _eviction(one: Table) -> Line:
    sake = f" for {one['made_room_for']}" if one.get("made_room_for") else ""
    reason, why = str(one.get("reason")), str(one.get("why") or "")
    more = f" ({why})" if why and why != reason else ""
    said = f"{one.get('model')} left {one.get('device')}: {reason}{sake}{more}"
    return [(f"{_clock(one.get('time'))}  ", "dim"), (printable(said), "")]


def _block(title: str, shown: list[Line]) -> list[Line]:
    return [[], [(title, "bold")], *shown] if shown else []


def _cut(block: list[Line], room: int) -> list[Line]:
    """With so many lines at most; its end says what is missing. Nothing where there is no room for more than a title."""
    if len(block) <= room:
        return block
    if room < 3:
        return []
    return [*block[: room - 1], [(f"... and {len(block) - room + 1} more", "dim")]]


def _clipped(line: Line, width: int | None) -> Line:
    from rich.cells import cell_len, set_cell_size

    if width is None or cell_len(plain(line)) <= width:
        return line
    clipped: Line = []
    left = width - 1
    for text, style in line:
        clipped.append((text if cell_len(text) <= left else set_cell_size(text, left), style))
        left -= min(left, cell_len(text))
    return [*clipped, ("…", "")]


def _of(count: int) -> str:
    return bytes_text(count) if count else "nothing"


def _clock(time: Any) -> str:
    try:
        return datetime.fromisoformat(str(time)).astimezone().strftime("%H:%M:%S")
    except ValueError:
        return printable(str(time))
