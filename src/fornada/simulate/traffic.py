"""Requests that were made up: popularity after Zipf, arrivals one by one or in bursts, models of one size or of many.

Chance is an argument: the same seed is the same traffic.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from fornada.core.names import Instant, ModelName
from fornada.core.policy.ladder import Ladder

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class SimulatedModel:
    """A model as numbers."""

    name: ModelName
    device_bytes: int
    host_bytes: int
    """Of the host while it is ready: its process."""
    ladder: Ladder
    concurrency: int = 1
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    at: Instant
    model: ModelName
    work_s: float


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked of a node."""

    duration_s: float
    rate: float
    """Requests a second, all models together."""
    work_s: float
    """Mean time of a request at its model."""
    zipf: float = 1.0
    """The nth model is asked n**-zipf times as often as the first."""
    burst: float = 1.0
    """Mean requests of one model that come together, about `burst_gap_s` apart. 1: each comes alone."""
    burst_gap_s: float = 0.3


def models(
    sizes: Sequence[int], *, bandwidth: float, start_s: float = 3.0, stop_s: float = 0.1, concurrency: int = 4
) -> list[SimulatedModel]:
    """One model of each size in bytes. They sleep and wake at `bandwidth` bytes a second; a start reads the weights at a tenth of it."""
    return [
        SimulatedModel(
            name=ModelName(f"@sim/{number:02}"),
            device_bytes=size,
            host_bytes=GIB // 16,
            ladder=Ladder(
                start_s=start_s + 10 * size / bandwidth,
                stop_s=stop_s,
                sleeps=True,
                sleep_s=size / bandwidth,
                wake_s=size / bandwidth,
                asleep_host_bytes=GIB // 16 + size,
            ),
            concurrency=concurrency,
        )
        for number, size in enumerate(sizes)
    ]


def mixed_sizes(count: int, *, least: int, most: int, chance: random.Random) -> list[int]:
    """Bytes, evenly spread on a logarithmic scale: of a catalogue's models many are small and few are large."""
    return [int(least * (most / least) ** chance.random()) for _ in range(count)]


def requests(models: Sequence[SimulatedModel], load: Load, chance: random.Random) -> list[Asked]:
    """In order of time. Which model has which rank is chance: size and popularity have nothing to do with each other."""
    ranked = list(models)
    chance.shuffle(ranked)
    weights = list(accumulate((rank + 1) ** -load.zipf for rank in range(len(ranked))))
    found: list[Asked] = []
    at = 0.0
    while (at := at + chance.expovariate(load.rate / load.burst)) < load.duration_s:
        (model,) = chance.choices(ranked, cum_weights=weights)
        when = at
        while True:
            found.append(Asked(Instant(when), model.name, chance.expovariate(1 / load.work_s)))
            if chance.random() * load.burst < 1.0:
                break
            when += chance.expovariate(1 / load.burst_gap_s)
    return sorted((asked for asked in found if asked.at < load.duration_s), key=lambda asked: (asked.at, asked.model))
