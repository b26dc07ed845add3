"""The name that somebody probably meant."""

import pytest

from fornada.control.nearest import BURST_S, LONGEST, SHARE, Nearest, nearest

KNOWN = [
    "@cf/openai/whisper",
    "@fornada/coco-ssd",
    "@fornada/efficientnet-lite0",
    "@fornada/whisper-tiny-en",
    "@local/echo",
    "@local/broken",
]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("@fornada/coco-sdd", "@fornada/coco-ssd"),
        ("fornada/coco-ssd", "@fornada/coco-ssd"),
        ("coco-ssd", "@fornada/coco-ssd"),
        ("COCO-SSD", "@fornada/coco-ssd"),
        ("@local/eco", "@local/echo"),
        ("echo", "@local/echo"),
        ("@cf/other/whisper", "@cf/openai/whisper"),
        ("efficentnet-lite0", "@fornada/efficientnet-lite0"),
        ("@local/ech1", "@local/echo"),
        ("@local/nope", ""),  # @local/broken has its account, and little else
        ("@no/such", ""),
        ("", ""),
    ],
)
def test_the_name_spelled_most_alike_is_the_one_that_was_meant(name: str, meant: str) -> None:
    assert nearest(name, KNOWN) == meant


def test_suggestions_take_a_small_share_of_the_time_whoever_asks() -> None:
    now, asked = 0.0, 0

    def known() -> list[str]:
        nonlocal now, asked
        now += 0.01  # as if there were very many
        asked += 1
        return KNOWN

    suggestions = Nearest(clock=lambda: now)
    until = 20.0
    while now < until:
        suggestions.find("echo", known)
        now += 0.0001
    assert asked * 0.01 <= BURST_S + until * SHARE + 0.01
    assert asked > 10
    now += 100.0
    assert suggestions.find("echo", known) == "@local/echo", "the budget fills up again"


def test_a_very_long_name_is_compared_with_none() -> None:
    assert Nearest(clock=lambda: 0.0).find("x" * (LONGEST + 1), lambda: pytest.fail("asked")) == ""
