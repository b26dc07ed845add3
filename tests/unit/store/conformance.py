"""What every driver of StorePort must do: subclass StoreConformance and give it an `open_store` fixture."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fornada.core.errors import Conflict, ModelNotAllowed, UnknownModel
from fornada.core.names import LOCAL_ACCOUNT, AccountId, ModelName, VersionDigest
from fornada.core.ports import Peak, PeakKey, StorePort, Version
from fornada.core.specs import spec_from_table

A = ModelName("@test/a")
B = ModelName("@test/é/b.c")
OTHER = AccountId("other")
ONE, TWO, THREE = (VersionDigest(letter * 64) for letter in "123")
Open = Callable[[], StorePort]


def version(model: ModelName = A, digest: VersionDigest = ONE, account: AccountId = LOCAL_ACCOUNT, **table: object) -> Version:
    spec = spec_from_table({"name": model, "settings": {"load_s": 3.5, "deep": {"list": [1, 2]}}, **table})
    return Version(model, digest, account, spec, f"/elsewhere/{digest}", f"tiny==1.0 --hash=sha256:{digest}\n", 1764000000.25)


def put(store: StorePort, *versions: Version, label: str = "stable") -> None:
    for each in versions:
        store.put_version(each, label=label, name_account=each.account)


class StoreConformance:
    @pytest.fixture
    def open_store(self) -> Open:
        """Opens the same store again at each call, as a restarted node would."""
        raise NotImplementedError

    def test_it_begins_empty(self, open_store: Open) -> None:
        store = open_store()
        assert store.entries() == []
        assert store.versions(A) == []
        assert store.pins() == set()
        assert store.counters(A) == (0, 0)

    def test_what_was_put_is_there_after_a_restart_and_equal(self, open_store: Open) -> None:
        wanted = version(artifacts=[{"path": "x", "sha256": "a" * 64, "convert": {"script": "c.py"}}], resources={"memory": "64MiB"})
        put(open_store(), wanted)
        (entry,) = open_store().entries()
        assert entry.stable == wanted
        assert (entry.name, entry.account, entry.versions, entry.previous, entry.canary, entry.pinned) == (
            A,
            LOCAL_ACCOUNT,
            (ONE,),
            None,
            None,
            False,
        )

    def test_a_second_version_becomes_stable_and_the_first_is_remembered(self, open_store: Open) -> None:
        store = open_store()
        put(store, version(), version(digest=TWO))
        (entry,) = store.entries()
        assert (entry.stable.digest, entry.previous and entry.previous.digest) == (TWO, ONE)
        assert entry.versions == (ONE, TWO)
        assert [each.digest for each in store.versions(A)] == [ONE, TWO]

    def test_the_same_version_again_changes_nothing(self, open_store: Open) -> None:
        store = open_store()
        put(store, version())
        before = store.entries()
        put(store, version())
        assert store.entries() == before

    def test_an_older_version_put_again_becomes_stable(self, open_store: Open) -> None:
        store = open_store()
        put(store, version(), version(digest=TWO), version(digest=THREE), version(digest=ONE))
        (entry,) = store.entries()
        assert (entry.stable.digest, entry.previous and entry.previous.digest) == (ONE, THREE)
        assert entry.versions == (ONE, TWO, THREE)

    def test_who_serves_goes_on_until_the_new_one_has_taken_the_name(self, open_store: Open) -> None:
        def serving() -> str | None:
            (entry,) = open_store().entries()
            return entry.serving.digest if entry.serving else None

        store = open_store()
        put(store, version())
        assert serving() == ONE
        put(store, version(digest=TWO))
        assert serving() == ONE, "a deploy alone changes nothing"
        put(store, version(digest=THREE))
        assert serving() == ONE
        assert store.set_serving(A, THREE).serving == version(digest=THREE)
        assert serving() == THREE
        store.set_label(A, label="stable", digest=ONE)
        assert serving() == THREE
        store.set_label(A, label="stable", digest=THREE)
        assert serving() == THREE
        store.set_label(A, label="stable", digest=ONE)
        store.remove_version(A, THREE)
        assert serving() == ONE, "what is gone can't serve"
        with pytest.raises(UnknownModel):
            store.set_serving(A, THREE)
        with pytest.raises(UnknownModel):
            store.set_serving(B, ONE)
        put(store, version(digest=TWO), label="canary")
        assert serving() == ONE, "a canary takes no name"

    def test_falling_back_to_the_previous_version_leaves_no_previous(self, open_store: Open) -> None:
        store = open_store()
        put(store, version(), version(digest=TWO))
        entry = store.set_label(A, label="stable", digest=ONE)
        assert (entry.stable.digest, entry.previous) == (ONE, None)
        assert open_store().entries() == [entry]

    def test_a_canary_stands_beside_the_stable_version(self, open_store: Open) -> None:
        store = open_store()
        put(store, version(), label="canary")
        assert store.entries()[0].canary is None, "a first version is stable, whatever the label"
        put(store, version(digest=TWO), label="canary")
        (entry,) = store.entries()
        assert (entry.stable.digest, entry.canary and entry.canary.digest, entry.previous) == (ONE, TWO, None)
        assert store.set_label(A, label="canary", digest=None).canary is None
        store.set_label(A, label="canary", digest=TWO)
        promoted = store.set_label(A, label="stable", digest=TWO)
        assert (promoted.stable.digest, promoted.canary) == (TWO, None)

    def test_labels_point_at_registered_versions_only(self, open_store: Open) -> None:
        store = open_store()
        put(store, version())
        with pytest.raises(UnknownModel):
            store.set_label(A, label="stable", digest=TWO)
        with pytest.raises(UnknownModel):
            store.set_label(B, label="stable", digest=ONE)
        with pytest.raises(Conflict):
            store.set_label(A, label="stable", digest=None)
        assert store.entries()[0].stable.digest == ONE

    def test_a_name_belongs_to_the_account_that_registered_it(self, open_store: Open) -> None:
        store = open_store()
        put(store, version())
        with pytest.raises(ModelNotAllowed):
            store.put_version(version(digest=TWO, account=OTHER), label="stable", name_account=OTHER)
        assert store.entries()[0].versions == (ONE,)

    def test_a_version_can_be_removed_but_not_the_stable_one(self, open_store: Open) -> None:
        store = open_store()
        put(store, version(), version(digest=TWO))
        put(store, version(digest=THREE), label="canary")
        with pytest.raises(Conflict, match="stable"):
            store.remove_version(A, TWO)
        store.remove_version(A, ONE)
        store.remove_version(A, THREE)
        (entry,) = open_store().entries()
        assert (entry.versions, entry.previous, entry.canary) == ((TWO,), None, None)
        store.remove_version(A, ONE)

    def test_a_removed_model_leaves_nothing(self, open_store: Open) -> None:
        store = open_store()
        put(store, version(), version(B))
        store.set_counters(A, loads=3, attempts=2)
        store.set_pinned(A, pinned=True)
        store.remove_model(A)
        store.remove_model(A)
        again = open_store()
        assert [entry.name for entry in again.entries()] == [B]
        assert (again.counters(A), again.pins(), again.versions(A)) == ((0, 0), set(), [])
        put(again, version(account=OTHER))

    def test_pins_and_counters_are_kept_also_of_models_that_ship_with_the_package(self, open_store: Open) -> None:
        store = open_store()
        put(store, version())
        store.set_pinned(A, pinned=True)
        store.set_pinned(B, pinned=True)
        store.set_pinned(B, pinned=True)
        store.set_counters(B, loads=7, attempts=1)
        again = open_store()
        assert again.pins() == {A, B}
        assert again.entries()[0].pinned
        assert again.counters(B) == (7, 1)
        again.set_pinned(B, pinned=False)
        again.set_counters(B, loads=8, attempts=0)
        assert (again.pins(), again.counters(B)) == ({A}, (8, 0))

    def test_peaks_are_kept_and_go_with_their_version_and_their_model(self, open_store: Open) -> None:
        store = open_store()
        put(store, version(), version(digest=TWO), version(B))
        keys = [PeakKey(A, ONE, "cpu", "threads=1"), PeakKey(A, TWO, "fake", "threads=1"), PeakKey(A, TWO, "fake", "threads=2")]
        for number, key in enumerate(keys):
            store.set_peak(key, Peak(number, 1 << 40))
        store.set_peak(PeakKey(B, ONE, "cpu", ""), Peak(7, 8))
        store.set_peak(keys[1], Peak(5, 6))
        assert open_store().peaks(A) == {keys[0]: Peak(0, 1 << 40), keys[1]: Peak(5, 6), keys[2]: Peak(2, 1 << 40)}
        store.set_peak(keys[2], None)
        store.set_peak(keys[2], None)
        store.remove_version(A, ONE)
        assert open_store().peaks(A) == {keys[1]: Peak(5, 6)}
        store.remove_model(A)
        assert (open_store().peaks(A), open_store().peaks(B)) == ({}, {PeakKey(B, ONE, "cpu", ""): Peak(7, 8)})

    def test_a_fence_stands_until_it_is_lifted(self, open_store: Open) -> None:
        store = open_store()
        assert store.fences() == {}
        store.set_fence("cuda:0", "XID 48")
        store.set_fence("cuda:1", "lost")
        store.set_fence("cuda:0", "XID 79")
        assert open_store().fences() == {"cuda:0": "XID 79", "cuda:1": "lost"}
        store.set_fence("cuda:0", "")
        store.set_fence("cuda:7", "")
        assert open_store().fences() == {"cuda:1": "lost"}

    def test_entries_come_by_name(self, open_store: Open) -> None:
        store = open_store()
        for name in ("b", "@z/a", "a", "é"):
            put(store, version(ModelName(name)))
        assert [entry.name for entry in store.entries()] == ["@z/a", "a", "b", "é"]

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["put", "canary", "stable", "remove", "forget", "reopen"]),
                st.sampled_from([A, B]),
                st.sampled_from([ONE, TWO, THREE]),
            ),
            max_size=12,
        )
    )
    def test_whatever_happens_labels_point_at_registered_versions(
        self, open_store: Open, happened: list[tuple[str, ModelName, VersionDigest]]
    ) -> None:
        store = open_store()
        for name in (A, B):
            store.remove_model(name)
        for what, name, digest in happened:
            try:
                match what:
                    case "put":
                        put(store, version(name, digest))
                    case "canary":
                        put(store, version(name, digest), label="canary")
                    case "stable":
                        store.set_label(name, label="stable", digest=digest)
                    case "remove":
                        store.remove_version(name, digest)
                    case "forget":
                        store.remove_model(name)
                    case _:
                        store = open_store()
            except (UnknownModel, Conflict):
                pass
            for entry in store.entries():
                digests = [each.digest for each in store.versions(entry.name)]
                assert tuple(digests) == entry.versions
                assert entry.stable.digest in digests
                for label in (entry.previous, entry.canary):
                    assert label is None or (label.digest in digests and label.digest != entry.stable.digest)

    def test_two_openings_see_one_another(self, open_store: Open) -> None:
        one, two = open_store(), open_store()
        put(one, version())
        assert [entry.name for entry in two.entries()] == [A]
        two.set_pinned(A, pinned=True)
        assert one.pins() == {A}
