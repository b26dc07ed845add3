"""Who is looked at when, and what is too much."""

from fornada.core.names import Instant
from fornada.node.disk_use import FILES_MOST, Held
from fornada.node.scratch import CALM_S, LOOK_S, NEVER_LOOKED, REST, Looked, due, too_much

MIB = 1024**2


def looked(at, took_s=0.0, *, stale=False):
    return Looked(Instant(at), took_s, stale)


def test_who_is_new_or_has_perhaps_written_is_looked_at_now_and_others_later():
    looks = {"new": NEVER_LOOKED, "writes": looked(99.9, stale=True), "calm": looked(99.9), "old": looked(100.0 - CALM_S)}
    assert due(looks, now=Instant(100.0)) == ["new", "old", "writes"]


def test_a_folder_that_costs_much_rests_long_however_much_is_written():
    looks = {"many": looked(100.0, 0.5, stale=True)}
    assert due(looks, now=Instant(100.0 + 0.5 * REST - 0.01)) == []
    assert due(looks, now=Instant(100.0 + 0.5 * REST)) == ["many"]


def test_a_turn_takes_no_longer_than_it_may_and_nobody_is_left_out_for_ever():
    looks = {name: looked(index, LOOK_S * 0.6) for index, name in enumerate("abcde")}
    looks["f"] = looked(5.0, LOOK_S * 10)
    turns = []
    for turn in range(6):
        now = Instant(1000.0 + turn * 0.25)
        chosen = due(looks, now=now)
        turns += chosen
        looks |= {name: Looked(now, looks[name].took_s) for name in chosen}
    assert sorted(turns) == list("abcdef")


def test_the_bound_is_on_the_sum_and_on_the_number():
    assert too_much(Held(64 * MIB, 10), nameless=0, declared=64 * MIB) == ""
    assert too_much(Held(70 * MIB, 10), nameless=0, declared=64 * MIB) == ""
    said = too_much(Held(96 * MIB, 10), nameless=0, declared=64 * MIB)
    assert said == "its scratch holds 96 MiB, and [resources] scratch in model.toml allows 64 MiB"
    assert "32 MiB of it in open files" in too_much(Held(64 * MIB, 10), nameless=32 * MIB, declared=64 * MIB)
    assert too_much(Held(4 * MIB, 1000), nameless=0, declared=0) == ""
    assert too_much(Held(0, FILES_MOST), nameless=0, declared=MIB) == ""
    assert "files" in too_much(Held(0, FILES_MOST + 1), nameless=0, declared=MIB)
    assert "nested" in too_much(Held(0, 1, "it is nested"), nameless=0, declared=MIB)
