"""Whether an answer is the expected one as far as machines agree: scores, places and masks move a little with the processor."""

import base64
import io
import math
from collections.abc import Iterable
from typing import Any

from PIL import Image

SCORE = 0.07
"""What a number up to 1 (a score, a coordinate of a vector) may be off."""
SHARE = 0.04
"""What a larger one (a pixel, a second) may be off, of itself; at least half a unit."""
UNSURE = 0.15
"""Entries of a ranking below this score change their places, and others come in."""
PIXELS = 0.01
"""The share of a mask's pixels that may differ."""
BY_CHANCE = ("prompt_tokens_details",)
"""What depends on who asked before: an example doesn't say it."""


def unlike(got: Any, wanted: Any, path: str = "answer") -> str:
    """What differs beyond the tolerances, in words; empty if nothing does."""
    match wanted:
        case {"mask": str(mask), **others} if isinstance(got, dict):
            kept = {key: value for key, value in got.items() if key != "mask"}
            return _masks(str(got.get("mask")), mask, f"{path}.mask") or unlike(kept, others, path)
        case dict():
            if isinstance(got, dict):
                got = {key: value for key, value in got.items() if key in wanted or key not in BY_CHANCE}
            if not isinstance(got, dict) or got.keys() != wanted.keys():
                return f"{path} is {got!r:.300} instead of {wanted!r:.300}"
            return _first(unlike(got[key], wanted[key], f"{path}.{key}") for key in wanted)
        case [{"label": _, "score": _}, *_]:
            return _rankings(got, wanted, path)
        case list():
            if not isinstance(got, list) or len(got) != len(wanted):
                return f"{path} is {got!r:.300} instead of {wanted!r:.300}"
            return _first(unlike(one, other, f"{path}[{place}]") for place, (one, other) in enumerate(zip(got, wanted, strict=True)))
        case float() | int() if not isinstance(wanted, bool) and isinstance(got, float | int):
            near = math.isclose(got, wanted, abs_tol=SCORE if abs(wanted) <= 1 else max(0.5, SHARE * abs(wanted)))
            return "" if near else f"{path} is {got} instead of {wanted}"
    return "" if got == wanted else f"{path} is {got!r:.300} instead of {wanted!r:.300}"


def _rankings(got: Any, wanted: list[Any], path: str) -> str:
    if not isinstance(got, list) or not got:
        return f"{path} is {got!r:.300}"
    sure = [each for each in wanted if each["score"] > UNSURE] or wanted[:1]
    by_label = {each["label"]: each for each in got}
    if len(by_label) == len(got):
        return _first(unlike(by_label.get(each["label"]), each, f"{path}: {each['label']}") for each in sure)
    return _in_order(got, sure, path)


def _in_order(got: list[Any], sure: list[Any], path: str) -> str:
    """Finds of which several have the same label."""
    if len(got) < len(sure):
        return f"{path} is {got!r:.300} instead of {sure!r:.300}"
    return _first(unlike(one, other, f"{path}[{place}]") for place, (one, other) in enumerate(zip(got, sure, strict=False)))


def _masks(got: str, wanted: str, path: str) -> str:
    one, other = (Image.open(io.BytesIO(base64.b64decode(text))).convert("L") for text in (got, wanted))
    if one.size != other.size:
        return f"{path} is of size {one.size} instead of {other.size}"
    off = sum(a != b for a, b in zip(one.tobytes(), other.tobytes(), strict=True)) / (one.width * one.height)
    return "" if off <= PIXELS else f"{path} differs in {off:.1%} of its pixels"


def _first(found: Iterable[str]) -> str:
    return next((each for each in found if each), "")
