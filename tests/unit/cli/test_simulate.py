"""`fornada simulate`: figures beside what others do, without a node."""

import json

import pytest

from tests.unit.cli.conftest import Cli

SHORT = ("--duration", "30", "--models", "8")


def test_it_says_for_each_way_how_long_requests_wait_and_how_much_is_swapped(cli: Cli):
    lines = cli("simulate", *SHORT).stdout.splitlines()
    names = [line for line in lines if not line.startswith(" ")]
    assert names == ["fornada", "the least recently used goes", "one model at a time", "in line, the device for one request"]
    assert all("p95" in line and "% of the time" in line for line in lines if line.startswith(" "))


def test_the_same_seed_is_the_same_traffic_for_everybody_and_each_time(cli: Cli):
    first = json.loads(cli("simulate", *SHORT, "--size", "512MiB-4GiB", "--json").stdout)
    assert json.loads(cli("simulate", *SHORT, "--size", "512MiB-4GiB", "--json").stdout) == first
    assert len({figures["answered"] for figures in first.values()}) == 1
    assert first["fornada"]["p95_s"] < first["one model at a time"]["p95_s"]
    assert json.loads(cli("simulate", *SHORT, "--size", "512MiB-4GiB", "--json", "--seed", "2").stdout) != first


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--size", "9GiB", "a model of 9 GiB never fits a device of 8 GiB"),
        ("--size", "much", "--size: 'much' is no size"),
        ("--size", "2GiB-1GiB", "the first is to be the smaller one"),
        ("--memory", "0", "has to be more than 0"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(cli: Cli, option: str, value: str, said: str):
    result = cli("simulate", *SHORT, option, value)
    assert result.exit_code == 1
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("option", ["--rate", "--work", "--duration", "--max-wait"])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_what_is_no_number_is_refused(cli: Cli, option: str, value: str):
    """A NaN is neither below nor above any bound: with one as a rate nobody ever asked, and the answer was that nobody waits."""
    result = cli("simulate", *SHORT, option, value)
    assert result.exit_code == 2 and option in result.stderr and result.stderr.count("\n") == 1
