"""Numbers of the node in Prometheus' text format.

Counting is on the way of every request, so a count here is a plain attribute (`requests.at(model, "ok").value += 1`) and
prometheus_client sees the numbers only when somebody scrapes. Scraping reads; it never loads a model nor keeps one awake.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
"""Upper bounds of the buckets of `fornada_request_seconds` and `fornada_load_seconds`."""

Reading = tuple[tuple[str, ...], float]


class Count:
    """One labelled number that only grows."""

    __slots__ = ("__weakref__", "value")

    def __init__(self) -> None:
        self.value = 0


class Spread:
    """How one labelled duration is distributed over SECONDS."""

    __slots__ = ("__weakref__", "counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.total += seconds


Measure = TypeVar("Measure", Count, Spread)


class Labelled(Generic[Measure]):
    """Measures of one name by their labels."""

    def __init__(self, name: str, text: str, labels: Sequence[str], make: Callable[[], Measure]) -> None:
        self.name, self.text, self.labels = name, text, labels
        self.missed: Callable[[str], None] = lambda model: None
        """Told the model of labels that are asked for and not there."""
        self._make: Callable[[], Measure] = make
        self._by_labels: dict[tuple[str, ...], Measure] = {}
        self._hidden: WeakValueDictionary[tuple[str, ...], Measure] = WeakValueDictionary()

    def at(self, *labels: str) -> Measure:
        found = self._by_labels.get(labels)
        if found is None:
            if self._of_models:
                self.missed(labels[0])
            found = self._by_labels.get(labels) or self._make()
            self._by_labels[labels] = found
        return found

    def forget(self, model: str) -> None:
        """Shows the model's measures no longer. Who holds one may go on counting: it is shown again if the model is."""
        if self._of_models:
            for labels in [labels for labels in self._by_labels if labels[0] == model]:
                self._hidden[labels] = self._by_labels.pop(labels)

    def recall(self, model: str) -> None:
        """Shows again what `forget` hid and somebody still holds."""
        for labels, measure in list(self._hidden.items()):
            if labels[0] == model:
                self._by_labels[labels] = measure
                del self._hidden[labels]

    @property
    def _of_models(self) -> bool:
        return bool(self.labels) and self.labels[0] == "model"


class Counts(Labelled[Count]):
    """A family of counts with the same name."""

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        super().__init__(name, text, labels, Count)

    def collect(self) -> Metric:
        family = CounterMetricFamily(self.name, self.text, labels=self.labels)
        for labels, count in self._by_labels.items():
            family.add_metric(labels, count.value)
        return family


class Spreads(Labelled[Spread]):
    """A family of spreads with the same name."""

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        super().__init__(name, text, labels, Spread)

    def collect(self) -> Metric:
        family = HistogramMetricFamily(self.name, self.text, labels=self.labels)
        for labels, spread in self._by_labels.items():
            family.add_metric(labels, list(_cumulated(spread.counts)), spread.total)
        return family


class Gauge:
    """A family of numbers that are read when somebody asks. Whoever knows them sets `read`."""

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        self.name, self.text, self.labels = name, text, labels
        self.read: Callable[[], Iterable[Reading]] = lambda: ()

    def collect(self) -> Metric:
        family = GaugeMetricFamily(self.name, self.text, labels=self.labels)
        for labels, value in self.read():
            family.add_metric(labels, value)
        return family


class Total(Gauge):
    """The same for numbers that only grow."""

    def collect(self) -> Metric:
        family = CounterMetricFamily(self.name, self.text, labels=self.labels)
        for labels, value in self.read():
            family.add_metric(labels, value)
        return family


class Metrics(Collector):
    """Every metric of the control plane, by the names that are promised."""

    def __init__(self) -> None:
        self.requests = Counts("fornada_requests", "Requests by what became of them (ok, or the refusal's name).", ["model", "outcome"])
        self.request_seconds = Spreads("fornada_request_seconds", "Seconds of a request by stage.", ["model", "stage"])
        self.loads = Counts("fornada_model_loads", "Loads by what became of them.", ["model", "outcome"])
        self.load_seconds = Spreads("fornada_model_load_seconds", "Seconds from the start of a runner until it was ready.", ["model"])
        self.evictions = Counts(
            "fornada_evictions",
            "Instances that lost their place, once each, by reason: room (another model needed it), idle, operator (unloaded), deploy "
            "(another version took over), removed, fault (it was ready and crashed, or its device failed), hung (it went on with "
            "what nobody waited for), memory (its own ran out; it comes back with more), shutdown, other.",
            ["model", "reason"],
        )
        self.swap_wait_seconds = Spreads(
            "fornada_swap_wait_seconds",
            "Seconds that a request waited because its model wasn't ready, until it was, or until the caller was refused or left. Requests "
            "that found it ready aren't in it, nor is the queue of a ready model.",
            ["model"],
        )
        self.step_seconds = Spreads(
            "fornada_step_seconds",
            "Seconds of a step on the ladder: start (from the grant of memory until ready), wake, sleep, stop (from the last answer until "
            "the process is gone). A step that failed isn't in it.",
            ["model", "step"],
        )
        self.swap_seconds = Total(
            "fornada_swap_seconds",
            "Seconds in which a device took a model in (and let none go), let one go (and took none in), or did both at once: in, out, both. "
            "No second is counted twice, so the sum of their rates is the share of time spent swapping.",
            ["device", "direction"],
        )
        self.orphaned = Counts("fornada_requests_orphaned", "Answers of runners that nobody waits for any more.", [])
        self.outbound_connections = Counts(
            "fornada_outbound_connections",
            "Connections that models asked for by what became of them (closed, broken, idle, stopped, refused, failed, busy).",
            ["model", "outcome"],
        )
        self.outbound_bytes = Counts("fornada_outbound_bytes", "Bytes between models and the hosts that they name.", ["model", "direction"])
        self.lines_dropped = Counts(
            "fornada_output_lines_dropped", "Lines that a model printed and that are not kept: more came than are stored.", ["model"]
        )
        self.queue_length = Gauge("fornada_queue_length", "Requests that wait for an instance.", ["model"])
        self.instances = Gauge("fornada_instances", "Instances by state.", ["model", "state"])
        self.parked = Gauge("fornada_instances_parked", "Ready instances whose processes are stopped until the next request.", [])
        self.spare_bytes = Gauge("fornada_spares_bytes", "Memory that parked spares keep, by what one of each zygote was measured to.", [])
        self.zygotes = Gauge("fornada_zygotes", "Processes that fork instances, by state (importing, ready, unfit).", ["state"])
        self.device_bytes = Gauge(
            "fornada_device_bytes",
            "Bytes of a device by kind: total, reserved (what models are charged of it), used, foreign (held by others), lingering (of "
            "processes that are gone, not yet given back).",
            ["device", "kind"],
        )
        self.charged_bytes = Gauge(
            "fornada_charged_bytes",
            "Bytes that a model's instances are charged of a device, by what the charge rests on (declared, learned, live).",
            ["model", "device", "because"],
        )
        self.jobs = Gauge("fornada_jobs", "Jobs that have not ended, by status (queued, running).", ["status"])
        self.jobs_ended = Counts("fornada_jobs_ended", "Jobs by how they ended (completed, failed, cancelled, expired).", ["status"])
        self.job_items = Gauge(
            "fornada_job_items", "Items of jobs that wait or are being worked on, by status (queued, running).", ["status"]
        )
        self.job_items_ended = Counts(
            "fornada_job_items_ended",
            "Items of jobs by how they ended (completed, failed, cancelled, expired). Those that a job took with it as it was ended before its "
            "time count, too.",
            ["status"],
        )
        self.gateway_lookups = Counts(
            "fornada_gateway_lookups",
            "Times that AI gateways looked for a kept answer, by what they found (hit, miss). Requests that may not be answered from what is "
            "kept aren't in it.",
            ["outcome"],
        )
        self.isolation = Gauge(
            "fornada_isolation_info", "1 with the level at which models are kept apart (full, namespaces, landlock, none).", ["level"]
        )
        self.loop_age = Gauge("fornada_scheduler_loop_age_seconds", "Seconds since the scheduler's last turn.", [])
        self._more: list[Counts | Spreads | Gauge] = []
        for family in self._families():
            self._watch(family)
        self.orphaned.at()
        for outcome in ("hit", "miss"):
            self.gateway_lookups.at(outcome)
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def add(self, family: Counts | Spreads | Gauge) -> None:
        """One more family, of a part that this module doesn't know."""
        self._more.append(family)
        self._watch(family)

    def forget(self, model: str) -> None:
        """The model is gone from the catalogue: its labels go from the text of /metrics, which would grow for ever."""
        for family in self._families():
            if isinstance(family, Labelled):
                family.forget(model)

    def collect(self) -> Iterator[Metric]:
        for family in self._families():
            yield family.collect()

    def _families(self) -> Iterator[Counts | Spreads | Gauge]:
        for family in [*vars(self).values(), *self._more]:
            if isinstance(family, Counts | Spreads | Gauge):
                yield family

    def _watch(self, family: Counts | Spreads | Gauge) -> None:
        if isinstance(family, Labelled):
            family.missed = self._recall

    def _recall(self, model: str) -> None:
        # A model of that name again: whoever kept a measure of it counts on there.
        for family in self._families():
            if isinstance(family, Labelled):
                family.recall(model)

    def render(self) -> bytes:
        """The text of /metrics (content type `text/plain; version=0.0.4`)."""
        return generate_latest(self._registry)


def _cumulated(counts: Sequence[int]) -> Iterator[tuple[str, float]]:
    seen = 0
    for bound, count in zip([*map(str, SECONDS), "+Inf"], counts, strict=True):
        seen += count
        yield bound, seen
