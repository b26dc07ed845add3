"""What every driver of core.files.FileStore must do: subclass FileStoreConformance and give it an `open_files` fixture."""

from collections.abc import Callable

import pytest

from fornada.core.files import File, FileId, FileStore
from fornada.core.names import LOCAL_ACCOUNT, AccountId

ONE, TWO = FileId("one"), FileId("two")
Open = Callable[[], FileStore]


def file(id: FileId = ONE, *, account: AccountId = LOCAL_ACCOUNT, created: float = 100.0) -> File:
    return File(id, account, "in.jsonl", "batch", 6, created)


def put(store: FileStore, wanted: File) -> None:
    for number, data in enumerate((b"abc", b"def")):
        store.put_piece(wanted.id, number, data)
    store.put_file(wanted)


class FileStoreConformance:
    @pytest.fixture
    def open_files(self) -> Open:
        """Opens the same store again at each call, as a restarted node would."""
        raise NotImplementedError

    def test_what_was_put_is_there_after_a_restart_and_equal(self, open_files: Open) -> None:
        put(open_files(), file())
        store = open_files()
        assert store.file(ONE) == file()
        assert [store.piece(ONE, number) for number in range(3)] == [b"abc", b"def", b""]

    def test_pieces_alone_are_no_file(self, open_files: Open) -> None:
        store = open_files()
        store.put_piece(ONE, 0, b"abc")
        assert (store.file(ONE), store.files(LOCAL_ACCOUNT)) == (None, [])

    def test_files_are_listed_by_account_the_newest_first(self, open_files: Open) -> None:
        store = open_files()
        put(store, file())
        put(store, file(TWO, created=200.0))
        put(store, file(FileId("three"), account=AccountId("other")))
        assert [each.id for each in store.files(LOCAL_ACCOUNT)] == [TWO, ONE]

    def test_what_is_removed_goes_piece_by_piece_and_what_is_being_written_stays(self, open_files: Open) -> None:
        store = open_files()
        put(store, file())
        put(store, file(TWO))
        store.remove_file(ONE)
        store.put_piece(FileId("new"), 0, b"x")
        assert store.file(ONE) is None
        while store.remove_pieces(created_before=0.0, writing=frozenset({FileId("new")})):
            pass
        assert (store.piece(ONE, 0), store.piece(TWO, 1), store.piece(FileId("new"), 0)) == (b"", b"def", b"x")

    def test_what_is_old_is_forgotten(self, open_files: Open) -> None:
        store = open_files()
        put(store, file())
        put(store, file(TWO, created=200.0))
        while store.remove_pieces(created_before=150.0):
            pass
        assert (store.file(ONE), store.piece(ONE, 0), store.file(TWO), store.piece(TWO, 0)) == (None, b"", file(TWO, created=200.0), b"abc")
