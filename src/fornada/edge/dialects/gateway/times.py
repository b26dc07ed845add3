"""Instants as texts: RFC 3339, UTC."""

from datetime import UTC, datetime

from fornada.core.errors import BadRequest


def text_of(seconds: float) -> str:
    """Of seconds since 1970, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds_of(name: str, text: str) -> float:
    """Since 1970; a text without a zone is UTC's. Raises BadRequest, which names the field."""
    try:
        found = datetime.fromisoformat(text.strip().replace(" ", "+") if "T" in text else text.strip())
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise BadRequest(f"'{name}' must be a time such as 2026-11-30T12:00:00Z") from None
