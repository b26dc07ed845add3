"""A gateway's choices: what it keeps, when it tries again, how many it lets in, and whose word counts."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fornada.core import errors
from fornada.core.gateway import (
    KEYED_TTL_S,
    MOST_ATTEMPTS,
    MOST_DELAY_MS,
    MOST_KEPT_DELAY_MS,
    Asked,
    Backoff,
    GatewayId,
    GatewaySettings,
    Rules,
    Technique,
    rules_of,
)
from fornada.core.names import AccountId, Instant, VersionDigest
from fornada.core.policy.gateway_cache import cache_key, canonical, may_be_kept
from fornada.core.policy.gateway_retries import may_pass, timeout_ms, tries_again, wait_ms
from fornada.core.policy.windows import window_of

RULES = rules_of(GatewaySettings(), Asked())
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(max_size=4), values, max_size=5)


def key(*, rules: Rules = RULES, **changed: Any) -> bytes:
    usual: dict[str, Any] = {
        "account": AccountId("a"),
        "gateway": GatewayId("g"),
        "provider": "workers-ai",
        "endpoint": "/run/@test/a",
        "version": VersionDigest("1"),
        "media_type": "application/json",
        "body": b'{"prompt": "x"}',
        "headers": {},
        "form": "whole",
    }
    return cache_key(**{**usual, **changed}, rules=rules)


@given(objects, st.randoms())
def test_the_same_json_is_the_same_request_however_it_is_written(value: dict[str, Any], chance: Any):
    names = list(value)
    chance.shuffle(names)
    written = json.dumps({name: value[name] for name in names}, indent=2, ensure_ascii=chance.random() < 0.5).encode(
        "utf-8", "surrogatepass"
    )
    assert key(body=json.dumps(value).encode()) == key(body=written)


@given(objects, objects)
def test_other_json_is_another_request(one: dict[str, Any], other: dict[str, Any]):
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (key(body=json.dumps(one).encode()) == key(body=json.dumps(other).encode())) == same


@given(st.binary(max_size=20), st.binary(max_size=20))
def test_bytes_that_are_no_json_are_themselves_alone(one: bytes, other: bytes):
    one, other = b"\xff" + one, b"\xff" + other
    assert canonical(one) != one, "nothing else can look like it"
    assert (key(body=one) == key(body=other)) == (one == other)


@pytest.mark.parametrize(
    "changed",
    [
        {"account": AccountId("b")},
        {"gateway": GatewayId("h")},
        {"provider": "x"},
        {"endpoint": "/run/@test/b"},
        {"version": VersionDigest("2")},
        {"media_type": "text/plain"},
        {"headers": {"x-tone": "kind"}},
        {"body": b'{"prompt": "y"}'},
        {"body": b'{"prompt": "x", "stream": true}'},
    ],
)
def test_whatever_may_change_an_answer_makes_another_request(changed: dict[str, Any]):
    assert key(**changed) != key()


def test_headers_that_no_answer_depends_on_change_nothing():
    noise = {"user-agent": "a", "x-stainless-lang": "python", "cf-aig-metadata": "{}", "accept": "*/*", "content-type": "text/plain"}
    assert key(headers=noise) == key()


def test_words_can_t_be_moved_against_one_another():
    assert key(account=AccountId("ab"), gateway=GatewayId("c")) != key(account=AccountId("a"), gateway=GatewayId("bc"))
    assert key(headers={"x": "a\ny: b"}) != key(headers={"x": "a", "y": "b"})


def test_a_named_key_stands_for_everything_but_never_reaches_beyond_its_gateway():
    named = RULES._replace(cache_key="k")
    assert key(rules=named) == key(rules=named, body=b"other", endpoint="/else", version=VersionDigest("9"))
    assert key(rules=named) != key(rules=named, account=AccountId("b"))
    assert key(rules=named) != key(rules=named, form="events"), "nobody else can read it"
    assert key(rules=named) != key(rules=named, gateway=GatewayId("h"))
    assert key(rules=named) != key(rules=RULES._replace(cache_key="l"))
    assert key(rules=named) != key()


@pytest.mark.parametrize(
    ("settings", "asked", "ttl_s"),
    [
        ({}, {}, 0),
        ({"cache_ttl": 60}, {}, 60),
        ({"cache_ttl": 60}, {"cache_ttl_s": 90}, 90),
        ({"cache_ttl": 60}, {"cache_ttl_s": 0}, 0),
        ({"cache_ttl": 60}, {"skip_cache": True}, 0),
        ({"cache_ttl": 60}, {"skip_cache": False}, 60),
        ({}, {"cache_ttl_s": 90, "skip_cache": True}, 0),
        ({}, {"cache_key": "k"}, KEYED_TTL_S),
        ({"cache_ttl": 60}, {"cache_key": "k"}, 60),
        ({"cache_ttl": 60, "zdr": True}, {"cache_ttl_s": 90, "cache_key": "k"}, 0),
    ],
)
def test_how_long_an_answer_is_kept(settings: dict[str, Any], asked: dict[str, Any], ttl_s: int):
    assert rules_of(GatewaySettings(**settings), Asked(**asked)).ttl_s == ttl_s


def test_the_request_s_word_beats_the_gateway_s():
    settings = GatewaySettings(retry_max_attempts=2, retry_delay=10, retry_backoff=Backoff.LINEAR, collect_logs=False)
    assert rules_of(settings, Asked())[2:] == (False, True, None, 2, 10, Backoff.LINEAR)
    asked = Asked(max_attempts=4, retry_delay_ms=0, backoff=Backoff.CONSTANT, collect_log=True, collect_payload=False, timeout_ms=5)
    assert rules_of(settings, asked)[2:] == (True, False, 5, 4, 0, Backoff.CONSTANT)
    assert not rules_of(GatewaySettings(zdr=True), Asked(collect_log=True)).logged


@given(st.sampled_from(Backoff), st.integers(0, MOST_DELAY_MS), st.integers(1, MOST_ATTEMPTS))
def test_waits_grow_as_the_back_off_says_and_stay_bounded(backoff: Backoff, delay_ms: int, attempts: int):
    rules = RULES._replace(backoff=backoff, delay_ms=delay_ms, attempts=attempts)
    waits = [wait_ms(rules, attempt) for attempt in range(1, attempts + 1)]
    times = {Backoff.CONSTANT: [1, 1, 1, 1, 1], Backoff.LINEAR: [1, 2, 3, 4, 5], Backoff.EXPONENTIAL: [1, 2, 4, 8, 16]}[backoff]
    assert waits == [min(delay_ms * each, MOST_KEPT_DELAY_MS) for each in times[:attempts]]


@given(st.integers(0, 9), st.integers(1, MOST_ATTEMPTS))
def test_a_request_is_tried_as_often_as_it_may_and_no_longer_than_it_must(failures: int, attempts: int):
    rules = rules_of(GatewaySettings(), Asked(max_attempts=attempts))
    tries = 1
    while tries <= failures and tries_again(rules, tries, errors.ModelRaised("x")):
        tries += 1
    assert tries == min(failures + 1, attempts)


def test_what_the_caller_must_mend_is_not_tried_again():
    again = {errors.Busy, errors.ModelRaised, errors.RunnerDied, errors.LoadFailed, errors.OutOfDeviceMemory, errors.Unavailable}
    never = {errors.BadRequest, errors.UnknownModel, errors.QuotaUsedUp, errors.RateLimited, errors.NeverFits, errors.DeadlinePassed}
    assert {kind for kind in again | never if may_pass(kind("x"))} == again
    rules = RULES._replace(attempts=2)
    assert tries_again(rules, 1, None) and not tries_again(rules, 2, None)


def test_the_last_of_several_attempts_is_not_hurried():
    rules = RULES._replace(attempts=3, timeout_ms=10)
    assert [timeout_ms(rules, attempt) for attempt in (1, 2, 3)] == [10, 10, None]
    assert timeout_ms(rules._replace(attempts=1), 1) == 10


@given(
    st.sampled_from(Technique),
    st.integers(1, 5),
    st.integers(1, 30),
    st.lists(st.integers(0, 2000).map(lambda hundredths: hundredths / 64), min_size=1, max_size=60),
)
def test_no_window_lets_in_more_than_its_limit_and_none_fewer(technique: Technique, limit: int, interval_s: int, pauses: list[float]):
    settings = GatewaySettings(rate_limiting_interval=interval_s, rate_limiting_limit=limit, rate_limiting_technique=technique)
    window = window_of(settings)
    assert window is not None
    now, taken = 0.0, list[float]()
    for pause in pauses:
        now += pause
        if technique is Technique.SLIDING:
            there = [each for each in taken if each > now - interval_s]
        else:
            there = [each for each in taken if each // interval_s == now // interval_s]
        wait_s = window.wait_s(Instant(now))
        assert (wait_s > 0) == (len(there) >= limit)
        assert wait_s <= interval_s
        if wait_s:
            assert window.wait_s(Instant(now + wait_s)) == 0, "whoever waits as told is let in"
        else:
            window.take(Instant(now))
            taken.append(now)


@pytest.mark.parametrize(("interval", "limit"), [(None, 5), (5, None), (0, 5), (5, 0)])
def test_half_a_limit_is_none(interval: int | None, limit: int | None):
    assert window_of(GatewaySettings(rate_limiting_interval=interval, rate_limiting_limit=limit)) is None


def test_texts_and_pictures_are_kept_and_sound_is_not():
    assert [
        may_be_kept(type) for type in ("application/json", "text/event-stream", "image/png", "audio/mpeg", "application/octet-stream", "")
    ] == [
        *(True, True, True),
        *(False, False, False),
    ]
