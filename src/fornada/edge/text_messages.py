"""A conversation's contents in the one form that every model knows, whichever client wrote them.

null                              ""
parts that are texts              one text
parts of which some are none      as they are: pictures and the like, for models that know them
"""

from typing import Any

_TEXTS = ("text", "input_text", "output_text")


def made_plain(messages: Any) -> bool:
    """Turns contents into texts, where they are nothing but that. Returns whether something changed."""
    changed = False
    for message in messages if isinstance(messages, list) else []:
        if not isinstance(message, dict):
            continue
        content = message.get("content")
        if content is None:
            message["content"] = ""
            changed = True
        elif isinstance(content, list) and all(_is_text(part) for part in content):
            message["content"] = "\n".join(part if isinstance(part, str) else part["text"] for part in content)
            changed = True
    return changed


def _is_text(part: Any) -> bool:
    if isinstance(part, dict):
        return part.get("type") in _TEXTS and isinstance(part.get("text"), str)
    return isinstance(part, str)
