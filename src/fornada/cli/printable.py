"""Text of strangers, safe to show: a model's output must not move the operator's cursor, nor retitle the window, nor worse."""

import re

# C0 and C1 without tab and newline, and the marks that turn the direction of what follows.
_HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Control characters as escapes, such as `\\x1b`; tabs and newlines stay."""
    return _HARMFUL.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def escaped(json: str) -> str:
    """The same for JSON, which stays JSON of the same meaning: such characters stand in its strings only."""
    return _HARMFUL.sub(lambda found: f"\\u{ord(found[0]):04x}", json)
