"""/metrics, read."""

import re
from collections.abc import Mapping
from typing import NamedTuple

_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)(?: \d+)?\Z")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Sample(NamedTuple):
    """One line of /metrics."""

    name: str
    labels: Mapping[str, str]
    value: float


class Metrics:
    """A scrape. Raises AssertionError for a line that is neither a comment nor a sample."""

    def __init__(self, text: str) -> None:
        self.samples: list[Sample] = []
        for line in text.splitlines():
            if not line or line.startswith("#"):
                continue
            match = _SAMPLE.match(line)
            assert match, f"no line of the Prometheus format: {line!r}"
            labels = {name: value.replace(r"\"", '"') for name, value in _LABEL.findall(match["labels"] or "")}
            self.samples.append(Sample(match["name"], labels, float(match["value"])))

    def of(self, name: str, **labels: str) -> list[Sample]:
        """The samples of `name` whose labels include `labels`."""
        return [s for s in self.samples if s.name == name and all(s.labels.get(k) == v for k, v in labels.items())]

    def total(self, name: str, **labels: str) -> float:
        """Their sum; 0 where there are none."""
        return sum(sample.value for sample in self.of(name, **labels))

    def names(self) -> set[str]:
        return {sample.name for sample in self.samples}
