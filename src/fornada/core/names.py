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
    """The name of a model that is to be registered. Raises InvalidSpec with the reason."""
    try:
        refuse_traversal(name)
    except BadRequest as refusal:
        raise InvalidSpec(refusal.message) from None
    if ":" in name:
        raise InvalidSpec("a model's name can't hold a colon: 'name:x' means a version or a label")
    if any(character in "?#\\%" or unicodedata.category(character) in ("Zl", "Zp", "Cs", "Cn", "Cf") for character in name):
        raise InvalidSpec("a model's name can't hold '?', '#', '%', a backslash or invisible characters")
    if name != name.strip():
        raise InvalidSpec("a model's name can't begin or end with a space")
    last = name.rsplit("/", 1)[-1]
    if last in RESERVED_LAST_SEGMENTS:
        raise InvalidSpec(f"a model's name can't end in '{last}': it is a verb of the API")
    return ModelName(unicodedata.normalize("NFC", name))
