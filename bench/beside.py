"""The row `beside`: what a batch in the background costs those who wait for an answer, with a real model of the catalogue.

Callers ask on and on, with a pause after each answer, first alone and then beside a batch of a thousand requests for the same model, in
pairs one after the other. What the batch gets done meanwhile, and what it gets done alone, stand beside it.
"""

import argparse
import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import clients
from bench.measure import Outcome
from bench.servers import Ours

ROW = "beside"
MODEL = "@fornada/minilm"
BODY = '{"text": ["The cat sat on the mat.", "A batch goes on while nobody asks."]}'
ITEMS = 1000
CALLERS = 2
PAUSE_S = 0.05
CELLS = 4
"""Lengths of a cell of other rows: a 99th percentile needs some hundred requests."""
ALONE_S = 3.0
WARM = 20


@dataclass(frozen=True)
class Pair:
    """One caller's traffic twice; seconds."""

    requests: int
    p50_s: float
    p99_s: float
    beside_p50_s: float
    beside_p99_s: float
    items: int
    """Of the batch, done meanwhile."""


@dataclass(frozen=True)
class Beside:
    model: str
    pairs: list[Pair]
    items_per_s: float
    """Of the batch where nobody else asks."""


def measure(*, model: str = MODEL, body: str = BODY, pairs: int, seconds: float) -> Beside:
    """Raises RuntimeError where a request or an item fails."""
    server = Ours()
    try:
        server.boot()
        server.know(ROW, model)
        server.load(ROW)
        target = server.target(ROW, body.encode())
        for _ in range(WARM):
            clients.ask(target)
        found = [_pair(server, target, seconds) for _ in range(pairs)]
        job = server.submit(ROW, [json.loads(body)] * ITEMS)
        before, began = _done(server, job), time.monotonic()
        while _done(server, job) < ITEMS and time.monotonic() - began < ALONE_S:
            time.sleep(0.05)
        rate = (_done(server, job) - before) / (time.monotonic() - began)
        server.cancel(job)
        return Beside(model, found, rate)
    finally:
        server.stop()


def row(place: Path, given: argparse.Namespace) -> Outcome:
    """Raises RuntimeError."""
    found = measure(model=given.beside_model, body=given.beside_body, pairs=max(1, given.rounds), seconds=CELLS * given.seconds)
    return Outcome(_lines(found), [], asdict(found))


def _lines(found: Beside) -> list[str]:
    ratios = sorted(pair.beside_p99_s / pair.p99_s for pair in found.pairs)
    lines = [
        f"{ROW} {found.model}: p50 {pair.p50_s * 1e3:.1f} ms alone, {pair.beside_p50_s * 1e3:.1f} ms beside a batch; "
        f"p99 {pair.p99_s * 1e3:.1f} and {pair.beside_p99_s * 1e3:.1f} ms; {pair.items} items done meanwhile, {pair.requests} requests"
        for pair in found.pairs
    ]
    return [
        *lines,
        f"{ROW} {found.model}: the batch raises p99 by a factor of {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}); "
        f"alone it does {found.items_per_s:.0f} items a second",
    ]


def _pair(server: Ours, target: clients.Target, seconds: float) -> Pair:
    alone = _traffic(target, seconds)
    job = server.submit(ROW, [json.loads(target.body)] * ITEMS)
    before = _done(server, job)
    beside = _traffic(target, seconds)
    items = _done(server, job) - before
    server.cancel(job)
    return Pair(len(alone), _at(alone, 0.5), _at(alone, 0.99), _at(beside, 0.5), _at(beside, 0.99), items)


def _traffic(target: clients.Target, seconds: float) -> list[float]:
    """How long each request took, sorted."""
    with ThreadPoolExecutor(CALLERS) as callers:
        asked = [callers.submit(_ask, target, time.monotonic() + seconds) for _ in range(CALLERS)]
        return sorted(took for each in asked for took in each.result())


def _ask(target: clients.Target, until: float) -> list[float]:
    took = []
    while time.monotonic() < until:
        began = time.perf_counter()
        clients.ask(target)
        took.append(time.perf_counter() - began)
        time.sleep(PAUSE_S)
    return took


def _at(took: list[float], share: float) -> float:
    return took[int(share * (len(took) - 1))]


def _done(server: Ours, job: str) -> int:
    counts = server.job(job)["counts"]
    if counts.get("failed"):
        raise RuntimeError(f"{counts['failed']} items of the batch have failed")
    return int(counts.get("completed", 0))
