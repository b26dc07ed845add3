"""Models of the catalogue, as lists of them show them."""

from datetime import UTC, datetime

from fornada.core.ports import Entry


def author_of(name: str) -> str:
    """`meta` of @cf/meta/llama, `org` of org/name, `local` of a bare name. A first segment with @ is a namespace where more follow."""
    segments = name.split("/")
    if len(segments) > 2 and segments[0].startswith("@"):
        return segments[1]
    if len(segments) > 1:
        return segments[0].removeprefix("@")
    return "local"


def created_text(entry: Entry) -> str:
    """As Workers AI writes it: 2023-09-25 19:21:11.898, UTC."""
    return datetime.fromtimestamp(entry.stable.created, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def names_of(entry: Entry) -> tuple[str, ...]:
    """The name and the aliases."""
    return (entry.name, *entry.stable.spec.aliases)
