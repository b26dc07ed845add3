"""docs/reference/metrics.md from telemetry.metrics."""

from docs.generate.markdown import code, table
from fornada.telemetry.metrics import SECONDS, Counts, Gauge, Metrics, Spreads, Total

INTRODUCTION = """\
# Metrics

`GET /metrics` answers in Prometheus' text format. Scraping reads: it never loads a model, nor keeps one awake.
"""


def page() -> str:
    rows = [(code(name), kind, ", ".join(code(label) for label in labels), text) for name, kind, labels, text in families()]
    bounds = ", ".join(f"{bound:g}" for bound in SECONDS)
    return "\n".join(
        [
            INTRODUCTION,
            table(["metric", "kind", "labels", "meaning"], rows),
            f"Histograms have buckets up to {bounds} seconds. Beside these come the `process_*` metrics of the control plane's own process.\n",
        ]
    )


def families() -> list[tuple[str, str, list[str], str]]:
    """(name as scraped, kind, labels, meaning) of each family, in the order of the code."""
    found = []
    for family in vars(Metrics()).values():
        if isinstance(family, Counts | Total):
            found.append((f"{family.name}_total", "counter", list(family.labels), family.text))
        elif isinstance(family, Spreads):
            found.append((family.name, "histogram", list(family.labels), family.text))
        elif isinstance(family, Gauge):
            found.append((family.name, "gauge", list(family.labels), family.text))
    return found
