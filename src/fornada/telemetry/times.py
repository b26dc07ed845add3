"""Instants of the wall clock, written for people and for other programs."""

from datetime import UTC, datetime


def rfc3339(wall: float) -> str:
    """Seconds since 1970 as `2026-01-31T12:00:00.123Z`."""
    return datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
