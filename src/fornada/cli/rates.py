"""Requests per second and latencies of each model, from two readings of the node's metrics."""

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

REQUESTS = "fornada_requests_total"
SECONDS = "fornada_request_seconds"
STAGE = "total"
"""The stage of `fornada_request_seconds` that is the whole request."""


class Reading(NamedTuple):
    """What one scrape said: per model the requests, and the histogram of whole requests as bound -> count up to it."""

    taken: float
    requests: Mapping[str, float]
    buckets: Mapping[str, Mapping[float, float]]


class Rate(NamedTuple):
    """None where there were no requests to tell from."""

    rps: float | None
    p50_s: float | None
    p99_s: float | None


def read(text: str, *, now: float) -> Reading:
    """A Prometheus text as a Reading; `now` is its time in seconds of any clock."""
    from prometheus_client.parser import text_string_to_metric_families

    requests: dict[str, float] = defaultdict(float)
    buckets: dict[str, dict[float, float]] = defaultdict(dict)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            model = sample.labels.get("model", "")
            if sample.name == REQUESTS:
                requests[model] += sample.value
            elif sample.name == f"{SECONDS}_bucket" and sample.labels.get("stage") == STAGE:
                buckets[model][float(sample.labels["le"])] = sample.value
    return Reading(now, requests, buckets)


def between(before: Reading, after: Reading, model: str) -> Rate:
    """The rate between two readings; latencies of all requests so far where there were none in between."""
    seconds = after.taken - before.taken
    counted = after.requests.get(model, 0.0) - before.requests.get(model, 0.0)
    rps = counted / seconds if seconds > 0 and counted >= 0 else None
    new, old = after.buckets.get(model, {}), before.buckets.get(model, {})
    recent = {bound: count - old.get(bound, 0.0) for bound, count in new.items()}
    shown = recent if max(recent.values(), default=0.0) > 0 else new
    return Rate(rps, quantile(shown, 0.5), quantile(shown, 0.99))


def quantile(buckets: Mapping[float, float], share: float) -> float | None:
    """Linear within the bucket, as Prometheus' histogram_quantile; the last finite bound for what lies beyond it."""
    bounds = sorted(buckets)
    total = buckets[bounds[-1]] if bounds else 0.0
    if total <= 0:
        return None
    wanted = share * total
    below, below_bound = 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= wanted:
            if bound == float("inf"):
                return below_bound
            return below_bound + (bound - below_bound) * (wanted - below) / (buckets[bound] - below)
        below, below_bound = buckets[bound], bound
    return below_bound
