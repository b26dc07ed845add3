"""`options` and `tags` beside a model's inputs: what callers ask of the platform and not of the model (WORKERS_AI.md, 4)."""

from typing import Any, NamedTuple

import msgspec

from fornada.core.errors import BadRequest
from fornada.edge.json_bodies import value_of

MOST_TAGS, LONGEST_TAG = 5, 50


class Options(NamedTuple):
    """What stands beside the inputs, for the platform."""

    reject_if_busy: bool = False


NO_OPTIONS = Options()


class QueueWanted(BadRequest):
    """`queueRequest` stands in the options: what follows is no request to be run now. A refusal at doors that have no queue."""


def read_options(raw: msgspec.Raw) -> Options:
    """The platform's options. Raises BadRequest; QueueWanted where a job is asked for."""
    value = value_of(raw)
    if value is None:
        return NO_OPTIONS
    if not isinstance(value, dict):
        raise BadRequest("Type mismatch of '/options', it must be an object")
    if value.get("queueRequest") in (True, "true"):
        raise QueueWanted("'options.queueRequest' is for ai/run, with a list of 'requests'")
    if "tags" in value:
        tags = value["tags"]
        check_tags(tags if isinstance(tags, list) else [tags])
    busy = value.get("rejectIfBusy", False)
    if busy is not None and not isinstance(busy, bool):
        raise BadRequest("Type mismatch of '/options/rejectIfBusy', it must be true or false")
    return Options(reject_if_busy=bool(busy))


def webhook_of(raw: msgspec.Raw | None) -> str | None:
    """The address that is to be told of a job's end. Raises BadRequest where it is no text; what it may name is decided elsewhere."""
    value = value_of(raw) if raw is not None else None
    url = value.get("webhook") if isinstance(value, dict) else None
    if url is not None and not isinstance(url, str):
        raise BadRequest("Type mismatch of '/options/webhook', it must be a string")
    return url


def check_tags(tags: list[Any]) -> None:
    """At most 5 tags of at most 50 letters, digits and `: - . / @`. Raises BadRequest."""
    if len(tags) > MOST_TAGS:
        raise BadRequest(f"'/tags' may hold at most {MOST_TAGS} tags")
    for tag in tags:
        if not isinstance(tag, str) or not 0 < len(tag) <= LONGEST_TAG or not all(c.isalnum() or c in ":-./@" for c in tag):
            raise BadRequest(f"a tag has 1 to {LONGEST_TAG} letters, digits or : - . / @")
