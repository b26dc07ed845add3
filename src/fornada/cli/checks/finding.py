"""What a check says."""

import enum
from dataclasses import dataclass


class Level(enum.StrEnum):
    """ok: nothing to do · warn: works, less well or less safely · fail: something won't work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of `fornada doctor`. `advice` is what to do, empty where there is nothing."""

    subject: str
    level: Level
    seen: str
    advice: str = ""


def ok(subject: str, seen: str, advice: str = "") -> Finding:
    return Finding(subject=subject, level=Level.OK, seen=seen, advice=advice)


def warn(subject: str, seen: str, advice: str) -> Finding:
    return Finding(subject=subject, level=Level.WARN, seen=seen, advice=advice)


def fail(subject: str, seen: str, advice: str) -> Finding:
    return Finding(subject=subject, level=Level.FAIL, seen=seen, advice=advice)
