"""Responses in the SQLite file: the conformance suite."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fornada.store.sqlite import SqliteStore
from tests.unit.edge.fake_responses import FakeResponses
from tests.unit.store.response_conformance import ResponseStoreConformance


class TestSqlite(ResponseStoreConformance):
    @pytest.fixture
    def open_responses(self, tmp_path: Path) -> Iterator[Callable[[], SqliteStore]]:
        opened: list[SqliteStore] = []

        def reopen() -> SqliteStore:
            while opened:
                opened.pop().close()
            opened.append(SqliteStore(tmp_path / "store.sqlite"))
            return opened[-1]

        yield reopen
        for store in opened:
            store.close()


class TestFake(ResponseStoreConformance):
    @pytest.fixture
    def open_responses(self) -> Callable[[], FakeResponses]:
        fake = FakeResponses()
        return lambda: fake
