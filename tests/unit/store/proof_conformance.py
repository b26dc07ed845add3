"""What every driver of ProofStore must do: subclass ProofConformance and give it an `open_store` fixture."""

from collections.abc import Callable

import pytest

from fornada.core.names import LOCAL_ACCOUNT, AccountId
from fornada.core.proofs import EVERYBODY, ProofStore

ONE, TWO = "1" * 64, "2" * 64
OTHER = AccountId("other")
Open = Callable[[], ProofStore]


class ProofConformance:
    @pytest.fixture
    def open_store(self) -> Open:
        """Opens the same store again at each call, as a restarted node would."""
        raise NotImplementedError

    def test_what_one_account_has_proved_is_its_alone_after_a_restart_too(self, open_store: Open) -> None:
        store = open_store()
        store.put_proved(LOCAL_ACCOUNT, ONE)
        store.put_proved(LOCAL_ACCOUNT, ONE)
        again = open_store()
        assert (again.has_proved(LOCAL_ACCOUNT, ONE), again.has_proved(LOCAL_ACCOUNT, TWO), again.has_proved(OTHER, ONE)) == (
            True,
            False,
            False,
        )

    def test_what_is_everybodys_is_each_accounts(self, open_store: Open) -> None:
        store = open_store()
        store.put_proved(EVERYBODY, ONE)
        assert store.has_proved(OTHER, ONE) and not store.has_proved(OTHER, TWO)

    def test_files_that_are_gone_are_forgotten_of_all(self, open_store: Open) -> None:
        store = open_store()
        for account in (LOCAL_ACCOUNT, OTHER):
            for sha256 in (ONE, TWO):
                store.put_proved(account, sha256)
        store.keep_proved([TWO, "3" * 64])
        proved = [store.has_proved(account, sha256) for account in (LOCAL_ACCOUNT, OTHER) for sha256 in (ONE, TWO)]
        assert proved == [False, True, False, True]
