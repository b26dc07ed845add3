"""What every driver of core.responses.ResponseStore must do: subclass ResponseStoreConformance and give it an `open_responses` fixture."""

from collections.abc import Callable

import pytest

from fornada.core.names import LOCAL_ACCOUNT, AccountId
from fornada.core.responses import KeptResponse, ResponseStore

Open = Callable[[], ResponseStore]
OTHER = AccountId("other")


def kept(id: str = "resp_1", *, account: AccountId = LOCAL_ACCOUNT, created: float = 100.0, size: int = 9) -> KeptResponse:
    return KeptResponse(id, account, created, b"{}", b"[]", b"x" * (size - 4))


def keep(store: ResponseStore, *wanted: KeptResponse, since: float = 0.0, most: int = 10, most_bytes: int = 1000) -> None:
    for each in wanted:
        store.keep_response(each, since=since, most=most, most_bytes=most_bytes)


class ResponseStoreConformance:
    @pytest.fixture
    def open_responses(self) -> Open:
        """Opens the same store again at each call, as a restarted node would."""
        raise NotImplementedError

    def test_what_was_kept_is_there_after_a_restart_and_equal(self, open_responses: Open) -> None:
        keep(open_responses(), kept())
        assert open_responses().response("resp_1", LOCAL_ACCOUNT, since=0.0) == kept()

    def test_another_account_s_are_not_there(self, open_responses: Open) -> None:
        store = open_responses()
        keep(store, kept())
        assert store.response("resp_1", OTHER, since=0.0) is None
        assert not store.remove_response("resp_1", OTHER)
        assert store.remove_response("resp_1", LOCAL_ACCOUNT) and not store.remove_response("resp_1", LOCAL_ACCOUNT)
        assert store.response("resp_1", LOCAL_ACCOUNT, since=0.0) is None

    def test_what_is_too_old_is_not_there_and_goes(self, open_responses: Open) -> None:
        store = open_responses()
        keep(store, kept())
        assert store.response("resp_1", LOCAL_ACCOUNT, since=100.5) is None
        keep(store, kept("resp_2", created=200.0), since=150.0)
        assert store.response("resp_1", LOCAL_ACCOUNT, since=0.0) is None
        assert store.response("resp_2", LOCAL_ACCOUNT, since=0.0) is not None

    def test_beyond_so_many_or_so_many_bytes_an_account_s_oldest_go(self, open_responses: Open) -> None:
        store = open_responses()
        keep(store, kept("theirs", account=OTHER, created=1.0))
        keep(store, *(kept(str(number), created=float(number)) for number in range(5)), most=3)
        assert [store.response(str(number), LOCAL_ACCOUNT, since=0.0) is not None for number in range(5)] == [
            False,
            False,
            True,
            True,
            True,
        ]
        keep(store, kept("long", created=9.0, size=995), most_bytes=1000)
        assert store.response("4", LOCAL_ACCOUNT, since=0.0) is None and store.response("long", LOCAL_ACCOUNT, since=0.0) is not None
        assert store.response("theirs", OTHER, since=0.0) is not None, "another account's stay"
