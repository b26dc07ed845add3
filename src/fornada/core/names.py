"""Names and ids: what a model may be called, and how a reference such as `name:canary` is read."""

import re
import unicodedata
from typing import NamedTuple, NewType

from fornada.core.errors import BadRequest, InvalidSpec

AccountId = NewType("AccountId", str)
ModelName = NewType("ModelName", str)
VersionDigest = NewType("VersionDigest", str)
"""sha256 in hex of what a version is made of: its files and its lock."""
Instant = NewType("Instant", float)
"""Seconds of a monotonic clock."""
NEVER = Instant(float("inf"))

LOCAL_ACCOUNT = AccountId("local")
DIGEST_SHORTEST = 12
NAME_LONGEST = 200
RESERVED_LAST_SEGMENTS = frozenset(
    [
        "load",
        "unload",
        "sleep",
        "pin",
        "reset",
        "rollout",
        "rollback",
        "versions",
        "ready",
        "infer",
        "metadata",
        "config",
        "stats",
        "logs",
        "why",
    ]
)
LABELS = frozenset({"stable", "canary"})
MARKS = "-_.+~ "
"""Punctuation that a model's name may hold: a space alone and inside a part, none of `_NOT_FIRST` at its beginning."""
_NOT_FIRST = "-.+~ "
_RULE = (
    "it is made of letters, digits, '-', '_', '.', '+', '~' and single spaces, in parts joined by '/' "
    "that begin with a letter, a digit or '_'; '@' may stand at the very front"
)
_DIGEST = re.compile(rf"[0-9a-f]{{{DIGEST_SHORTEST},64}}\Z")


class Reference(NamedTuple):
    """A model as a caller names it. At most one of `version` (a digest or its first 12 or more digits) and `label` is set."""

    name: ModelName
    version: str | None = None
    label: str | None = None


def parse_reference(text: str) -> Reference:
    """`name`, `name:label` or `name:digest`. Raises BadRequest for `..`, a NUL, an empty or an over-long name."""
    name, colon, suffix = text.strip("/").rpartition(":")
    if not colon:
        name, suffix = suffix, ""
    refuse_traversal(name)
    if not colon:
        return Reference(ModelName(name))
    if suffix in LABELS:
        return Reference(ModelName(name), label=suffix)
    if _DIGEST.match(suffix):
        return Reference(ModelName(name), version=suffix)
    raise BadRequest(f"'{suffix}' is neither a label (stable, canary) nor 12 or more hex digits of a version")


def refuse_traversal(name: str) -> None:
    """Raises BadRequest for a name that could be read as a path upwards, holds a control character, is empty or too long."""
    if not name:
        raise BadRequest("the model's name is empty")
    if len(name) > NAME_LONGEST:
        raise BadRequest(f"the model's name has more than {NAME_LONGEST} characters")
    if any(segment in ("..", ".", "") for segment in name.split("/")):
        raise BadRequest("a model's name can't hold '..', '.' or an empty segment")
    if any(unicodedata.category(character) == "Cc" for character in name):
        raise BadRequest("a model's name can't hold control characters")


def check_deployable(name: str) -> ModelName:
    """The name of a model that is to be registered, in the one form that its characters can have. Raises InvalidSpec with the reason.

    Parts of letters and digits of any script, with the punctuation of `MARKS` between them, joined by slashes: author/model.
    """
    try:
        refuse_traversal(name)
    except BadRequest as refusal:
        raise InvalidSpec(refusal.message) from None
    if ":" in name:
        raise InvalidSpec("a model's name can't hold a colon: 'name:x' means a version or a label")
    name = unicodedata.normalize("NFC", name)
    bare = name.removeprefix("@")
    for character in bare:
        if not _may_stand_in_a_name(character):
            raise InvalidSpec(f"a model's name can't hold {_shown(character)}; {_RULE}")
    for part in bare.split("/"):
        if not part or part[0] in _NOT_FIRST or part[-1] == " " or "  " in part:
            raise InvalidSpec(f"a model's name can't hold the part '{part[:40]}'; {_RULE}")
    last = name.rsplit("/", 1)[-1]
    if last in RESERVED_LAST_SEGMENTS:
        raise InvalidSpec(f"a model's name can't end in '{last}': it is a verb of the API")
    return ModelName(name)


def _may_stand_in_a_name(character: str) -> bool:
    if character.isascii():
        return character.isalnum() or character in MARKS or character == "/"
    # L letters, M what is put on them, N numbers, So pictures: what can be seen and told apart. No space, quote or sign of any script.
    category = unicodedata.category(character)
    return category[0] in "LMN" or category == "So"


def _shown(character: str) -> str:
    printable = character.isprintable() and not character.isspace()
    return f"'{character}'" if printable else f"the invisible character U+{ord(character):04X}"
