"""Numbers on the command line."""

import math
from typing import Any

import click


class Finite(click.FloatRange):
    """A number within its bounds, and no other: `nan` is beyond none of them, and `inf` below no upper one that isn't there."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number", param, ctx)
        return number
