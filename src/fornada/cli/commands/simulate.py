"""`fornada simulate`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from fornada.cli.failures import CommandFailed
from fornada.cli.numbers import Finite
from fornada.cli.output import print_json

if TYPE_CHECKING:
    from fornada.simulate.report import Report


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the command line says."""

    models: int
    size: str
    memory: str
    rate: float
    work_s: float
    duration_s: float
    bandwidth: str
    seed: int
    max_wait_s: float


@click.command()
@click.option("--models", default=16, type=click.IntRange(1, 1000), show_default=True, help="How many models there are.")
@click.option("--size", default="2GiB", show_default=True, help="Device memory of each; 512MiB-4GiB spreads them over a range.")
@click.option("--memory", default="8GiB", show_default=True, help="What the device has.")
@click.option("--rate", default=2.0, type=Finite(0.001, 1000), show_default=True, help="Requests a second, Zipf over the models.")
@click.option("--work", "work_s", default=0.1, type=Finite(0.0001), show_default=True, help="Mean seconds of a request.")
@click.option("--duration", "duration_s", default=120.0, type=Finite(1, 86400), show_default=True, help="Seconds of traffic.")
@click.option("--bandwidth", default="8GiB", show_default=True, help="Bytes a second between host and device, each way.")
@click.option("--max-wait", "max_wait_s", default=60.0, type=Finite(0.1), show_default=True, help="[node] max_wait_s.")
@click.option("--seed", default=1, show_default=True, help="The same seed is the same traffic.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def simulate(as_json: bool, **given: Any) -> None:
    """Say how long requests would wait with so many models on so little memory, on virtual time.

    The node's own policy decides, beside what others do with the same traffic. Models sleep and wake at the bandwidth; nothing is measured here.

    \b
    Example:
      fornada simulate --models 16 --size 2GiB --memory 8GiB
      fornada simulate --size 512MiB-4GiB --rate 4 --json
    """
    asked = _Asked(**given)
    reports = _reports(asked)
    if as_json:
        print_json({name: _figures(report) for name, report in reports.items()})
        return
    for name, report in reports.items():
        click.echo(f"{name}\n  {report.line()}")


def _reports(asked: _Asked) -> "dict[str, Report]":
    """By who decides."""
    import random

    from fornada.core.policy.memory import CPU, Bounds, DeviceRoom
    from fornada.core.policy.placement import plan
    from fornada.core.resources import format_size
    from fornada.simulate.baselines import fifo_exclusive, least_recently_used, one_at_a_time
    from fornada.simulate.node import Simulation
    from fornada.simulate.traffic import Load, models, requests

    chance = random.Random(asked.seed)
    memory, bandwidth = _bytes("--memory", asked.memory), _bytes("--bandwidth", asked.bandwidth)
    sizes = _sizes(asked, chance)
    if (largest := max(sizes)) > memory:
        raise CommandFailed(
            f"a model of {format_size(largest)} never fits a device of {format_size(memory)}; --memory says how much there is"
        )
    chosen = models(sizes, bandwidth=bandwidth)
    traffic = requests(chosen, Load(duration_s=asked.duration_s, rate=asked.rate, work_s=asked.work_s), chance)
    host = sum(model.ladder.asleep_host_bytes for model in chosen) * 2
    devices = [DeviceRoom(CPU, host), DeviceRoom("cuda:0", memory)]
    bounds = Bounds(max_wait_s=asked.max_wait_s)
    choosers = {"fornada": plan, "the least recently used goes": least_recently_used, "one model at a time": one_at_a_time}
    found = {
        name: Simulation(chosen, devices, bounds=bounds, choose=choose, asleep_on="cuda:0").serve(traffic)
        for name, choose in choosers.items()
    }
    return {**found, "in line, the device for one request": fifo_exclusive(chosen, traffic, device_bytes=memory)}


def _sizes(asked: _Asked, chance: Any) -> Sequence[int]:
    from fornada.simulate.traffic import mixed_sizes

    least, _, most = asked.size.partition("-")
    if not most:
        return [_bytes("--size", least)] * asked.models
    smallest, largest = _bytes("--size", least), _bytes("--size", most)
    if smallest > largest:
        raise CommandFailed(f"--size {asked.size}: the first is to be the smaller one")
    return mixed_sizes(asked.models, least=smallest, most=largest, chance=chance)


def _bytes(option: str, text: str) -> int:
    from fornada.core.resources import parse_size

    try:
        count = parse_size(text)
    except ValueError as error:
        raise CommandFailed(f"{option}: {error}") from None
    if not count:
        raise CommandFailed(f"{option} {text}: has to be more than 0")
    return count


def _figures(report: "Report") -> dict[str, Any]:
    return {
        "answered": len(report.answered),
        "refused": dict(report.refused),
        "p50_s": report.percentile(0.5),
        "p95_s": report.percentile(0.95),
        "p99_s": report.percentile(0.99),
        "longest_wait_s": report.longest_wait_s,
        "swap_s": report.swap_s,
        "swap_share": report.swap_share,
    }
