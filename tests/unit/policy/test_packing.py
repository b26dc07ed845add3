"""Who shares a process with whom, and why somebody doesn't."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from fornada.core.policy.packing import (
    CRASHES_MOST,
    LIBRARY_BYTES,
    Bound,
    HostRoom,
    alone_because,
    choose_host,
    expected_bytes,
    too_large_because,
)
from fornada.core.specs import spec_from_table

MIB = 1024**2
BOUND = Bound(members=4, memory_bytes=1024 * MIB)


def because(*, device="cpu", host_crashes=0, bound=BOUND, **tables):
    return alone_because(
        spec_from_table({"name": "@t/m", "engine": "onnx", **tables}), device=device, host_crashes=host_crashes, bound=bound
    )


@pytest.mark.parametrize("engine", ["onnx", "litert"])
def test_weights_without_code_share(engine):
    assert because(engine=engine) == ""
    assert because(engine=engine, host_crashes=CRASHES_MOST - 1, serving={"max_batch": 16, "max_wait_ms": 5}) == ""


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"engine": "python"}, "python"),
        ({"python": {"entry": "model.py"}}, "code"),
        ({"env": {"A": "1"}}, "variables"),
        ({"resources": {"network": ["example.com:443"]}}, "hosts"),
        ({"device": "cuda:0"}, "cuda:0"),
        ({"resources": {"threads": 2}}, "threads"),
        ({"serving": {"concurrency": 2}}, "several requests"),
        ({"serving": {"packed": False}}, "declined"),
        ({"host_crashes": CRASHES_MOST}, f"{CRASHES_MOST} times"),
        ({"bound": Bound(0, 1024 * MIB)}, "packed_members"),
    ],
)
def test_what_stands_in_the_way_is_named(more, word):
    assert word in because(**more)


def test_what_it_took_before_counts_more_than_a_guess():
    assert expected_bytes(weights_bytes=10 * MIB, peak_bytes=0) == 31 * MIB
    assert expected_bytes(weights_bytes=10 * MIB, peak_bytes=2 * MIB) == 2 * MIB


def test_a_model_that_would_fit_no_process_is_told_so_with_both_numbers():
    assert too_large_because(BOUND.memory_bytes - LIBRARY_BYTES, bound=BOUND) == ""
    assert "897 MiB" in (why := too_large_because(897 * MIB, bound=BOUND)) and "1 GiB" in why


def test_the_fullest_process_with_room_is_taken_and_none_where_none_has_any():
    rooms = [HostRoom("a", 1, 0), HostRoom("b", 3, 900 * MIB), HostRoom("c", 4, 0), HostRoom("d", 2, 1000 * MIB)]
    assert choose_host(rooms, expected=100 * MIB, bound=BOUND) == "b"
    assert choose_host(rooms, expected=200 * MIB, bound=BOUND) == "a"
    assert choose_host(rooms[2:], expected=100 * MIB, bound=BOUND) == ""
    assert choose_host([], expected=1, bound=BOUND) == ""


@given(
    st.lists(st.tuples(st.integers(1, 8), st.integers(0, 2048 * MIB)), max_size=6),
    st.integers(0, 2048 * MIB),
    st.integers(1, 8),
)
def test_no_choice_breaks_the_bound(rooms, expected, members):
    bound = Bound(members, 1024 * MIB)
    hosts = [HostRoom(str(number), *room) for number, room in enumerate(rooms)]
    chosen = choose_host(hosts, expected=expected, bound=bound)
    fitting = [host for host in hosts if host.members + 1 <= members and host.held_bytes + expected <= bound.memory_bytes]
    assert bool(chosen) == bool(fitting)
    if chosen:
        assert hosts[int(chosen)] in fitting and hosts[int(chosen)].members == max(host.members for host in fitting)
