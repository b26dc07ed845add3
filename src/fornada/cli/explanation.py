"""What the node knows of why a model is as it is, in the words of who runs it: what happened, what comes next, what one can do.

Pure: from the answer of `…/why` to labelled paragraphs. What an older or newer node doesn't tell, or tells otherwise, is left out.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from fornada.cli.output import ago, bytes_text, version_digits

Table = Mapping[str, Any]


def headline(found: Table) -> str:
    """The model, its state and the node's own sentence."""
    return f"{found.get('model')} ({found.get('state')}): {found.get('summary') or 'no more is known'}"


def paragraphs(found: Table, model: str) -> Iterator[tuple[str, list[str]]]:
    """(label, lines) of all that is worth saying beyond the headline. `model` is the name by which it was asked for."""
    parts = (
        ("since", _since(found)),
        ("doing", _progress(found)),
        ("waits for", _text(found.get("waits_for"))),
        ("went wrong", _failure(found)),
        ("comes next", _next(found)),
        ("you can", _advice(found, model)),
        ("requests", _requests(found)),
        ("charged", _charged(found)),
        ("memory", [_device(device) for device in _tables(found, "devices")]),
        ("beside it", [_resident(other) for other in _tables(found, "residents") if other.get("model") != found.get("model")]),
    )
    for label, lines in parts:
        if lines:
            yield label, lines


def _since(found: Table) -> list[str]:
    time = found.get("since")
    return [f"{time} ({ago(time)})"] if isinstance(time, str) and time else []


def _progress(found: Table) -> list[str]:
    if found.get("state") != "pending":
        return []
    progress = _table(found, "progress")
    fraction = progress.get("fraction")
    share = f" {fraction:.0%}" if _is_number(fraction) else ""
    said = f"{progress.get('phase') or ''}{share}"
    return [f"{said}: {progress['text']}" if progress.get("text") else said] if said else []


def _failure(found: Table) -> list[str]:
    failure = _table(found, "last_failure")
    reason = failure.get("reason")
    if not isinstance(reason, str) or not reason:
        return []
    lines = [] if reason in str(found.get("summary")) else [reason]
    when = failure.get("time")
    failures, crashes = failure.get("failures"), failure.get("crashes")
    facts = [
        "past: it has been ready since" if failure.get("past") else "",
        f"{when} ({ago(when)})" if isinstance(when, str) and when else "",
        f"{failures} loads failed in a row" if isinstance(failures, int) and failures > 1 else "",
        f"it ended by itself {_times(crashes)} in a row without an answer" if isinstance(crashes, int) and crashes > 1 else "",
    ]
    if any(facts):
        lines.append(", ".join(filter(None, facts)))
    if failure.get("last_line") and failure["last_line"] not in reason:
        lines.append(f"its last words: {failure['last_line']}")
    return lines


def _next(found: Table) -> list[str]:
    lines = []
    match found.get("state"):
        case "failed":
            left_s = _table(found, "last_failure").get("retry_in_s")
            if not _is_number(left_s):
                lines.append("it isn't tried again by itself: only after a reset, or as another version")
            elif left_s > 0:
                lines.append(
                    f"in {left_s:.0f} s at the earliest it is tried again, once somebody asks for it; requests are refused until then"
                )
            else:
                lines.append("the next request tries again")
        case "pending":
            lines.append("requests wait until it is ready, each as long as its own time limit")
        case "ready" if found.get("pinned"):
            lines.append("it stays loaded: it is pinned")
        case "ready":
            lines.append("it stops when nobody has asked for it for a while, or earlier where another model needs the room")
        case "stopped" if found.get("unloaded_by_operator"):
            lines.append("the next request or a load brings it back; until then nothing does, min_instances neither")
        case "stopped" | "asleep":
            lines.append("the next request brings it back")
        case "stopping":
            lines.append("running requests are finished; whoever asks now waits until it is back")
    coming = _table(found, "incoming")
    if coming:
        lines.append(f"version {version_digits(str(coming.get('version')))} is {coming.get('state')}, and takes over when it is ready")
    return lines


def _advice(found: Table, model: str) -> list[str]:
    commands = {
        "failed": [
            ("logs", "what it printed"),
            ("reset", "try at once, after mending the cause"),
            ("versions", "which versions there are"),
        ],
        "pending": [("logs -f", "what it prints"), ("unload", "stop it")],
        "ready": [("unload", "stop it"), ("pin", "keep it loaded"), ("logs -f", "what it prints")],
        "asleep": [("load", "wake it now"), ("unload", "stop it")],
        "stopped": [("load", "load it now"), ("pin", "keep it loaded")],
    }
    chosen = commands.get(str(found.get("state")), [])
    shown = [(f"fornada {verb.split(' ')[0]} {model}{' -f' * verb.endswith('-f')}", what) for verb, what in chosen]
    if found.get("waits_for"):
        shown.insert(0, ("fornada ps", "who holds the memory"))
    width = max((len(command) for command, _ in shown), default=0)
    return [f"{command:<{width}}  {what}" for command, what in shown]


def _requests(found: Table) -> list[str]:
    queue = _table(found, "queue")
    running, waiting, bound, oldest_s = (queue.get(key) for key in ("in_flight", "waiting", "bound", "oldest_s"))
    if not running and not waiting:
        return []
    longest = f", the first of them for {oldest_s:.1f} s" if waiting and _is_number(oldest_s) else ""
    room = f" (at most {bound} may)" if isinstance(bound, int) else ""
    return [f"{running or 0} being answered, {waiting or 0} waiting{room}{longest}"]


def _charged(found: Table) -> list[str]:
    """What its place costs others, and what that number rests on."""
    memory = _table(found, "memory")
    charged, where = _table(memory, "charged"), memory.get("device")
    lines = []
    if where and where != "cpu":
        lines.append(_charge(_table(charged, "device"), f"of {where}"))
    if charged:
        lines.append(_charge(_table(charged, "host"), "of the host"))
    return [line for line in lines if line] or _expected(memory)


def _charge(charge: Table, of: str) -> str:
    count = charge.get("bytes")
    if not isinstance(count, int) or not count:
        return ""
    slack = charge.get("slack_bytes")
    rests = {
        "declared": f"{bytes_text(charge.get('declared_bytes'))} as declared, until it has been measured",
        "learned": f"{bytes_text(charge.get('learned_bytes'))} as measured ({bytes_text(charge.get('declared_bytes'))} were declared)",
        "live": f"{bytes_text(charge.get('live_bytes'))} that it holds now, more than was expected",
    }.get(str(charge.get("because")), "")
    return f"{bytes_text(count)} {of}: {rests}{f', and {bytes_text(slack)} of slack' if slack else ''}"


def _expected(memory: Table) -> list[str]:
    """What it will be charged, for who has no place."""
    lines = []
    for kind, of in (("device", "of a device"), ("host", "of the host")):
        estimate = _table(_table(memory, "expected"), kind)
        learned, declared = estimate.get("learned_bytes"), estimate.get("declared_bytes")
        if learned:
            lines.append(f"{bytes_text(learned)} {of} will be planned for it, as measured ({bytes_text(declared)} were declared)")
        elif declared:
            lines.append(f"{bytes_text(declared)} {of} will be planned for it, as declared; nothing has been measured yet")
    return lines


def _device(device: Table) -> str:
    taken, total, foreign = (device.get(f"{key}_bytes") for key in ("reserved", "total", "foreign"))
    promised = "nothing" if not taken else bytes_text(taken)
    others = f", {bytes_text(foreign)} taken by other programs" if foreign else ""
    lingering = device.get("lingering_bytes")
    late = f", {bytes_text(lingering)} of processes that are gone not back yet" if lingering else ""
    why = f" ({device['fence']})" if device.get("fence") else ""
    fenced = "" if device.get("state") in (None, "ok") else f"; {device['state']}{why}: nothing is placed on it"
    return f"{device.get('id')}: {promised} of {bytes_text(total)} is promised to models{others}{late}{fenced}"


def _resident(other: Table) -> str:
    device = f" on {other['device']}" if other.get("device") else ""
    calls, idle_s = other.get("calls"), other.get("idle_s")
    if isinstance(calls, int) and calls > 0:
        doing = f", {calls} request{'s' * (calls != 1)}"
    else:
        doing = f", idle for {idle_s:.0f} s" if _is_number(idle_s) and idle_s > 0 else ""
    kept = ", kept loaded" if other.get("kept") else ""
    charged = f", {bytes_text(other['charged_bytes'])} charged" if other.get("charged_bytes") else ""
    return f"{other.get('model')} is {other.get('state')}{device}{charged}{doing}{kept}"


def _table(found: Table, key: str) -> Table:
    value = found.get(key)
    return value if isinstance(value, dict) else {}


def _tables(found: Table, key: str) -> list[Table]:
    value = found.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(value: Any) -> list[str]:
    return [value] if isinstance(value, str) and value else []


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
