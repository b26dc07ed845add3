"""Files of callers: bounded by account, written and read in pieces, forgotten in their time."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fornada.control.files import MOST_FILES, PIECE_BYTES, Files
from fornada.core.errors import TooLarge, UnknownFile
from fornada.core.files import File
from fornada.core.names import LOCAL_ACCOUNT, AccountId
from fornada.core.settings import JobsSettings
from fornada.store.sqlite import SqliteStore
from tests.loops.virtual import VirtualClock, virtual


class Silent:
    def info(self, event: str, /, **fields: Any) -> None:
        pass

    warning = info


Make = Callable[..., Files]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    store = SqliteStore(tmp_path / "store.sqlite")
    yield partial(files_in, store)
    store.close()


def files_in(store: SqliteStore, *, most: int = MOST_FILES, **settings: Any) -> Files:
    ids = iter("123456789")
    return Files(store=store, clock=VirtualClock(), log=Silent(), settings=JobsSettings(**settings), new_id=lambda: next(ids), most=most)


async def put(files: Files, data: bytes, account: AccountId = LOCAL_ACCOUNT) -> File:
    return await files.put(account, name="x", purpose="batch", data=data)


async def read(files: Files, file: File) -> bytes:
    return b"".join([piece async for piece in files.content(file)])


@virtual
async def test_a_file_of_any_size_comes_back(make: Make):
    files = make()
    for size in (0, 1, PIECE_BYTES, 3 * PIECE_BYTES + 1):
        data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        assert await read(files, await put(files, data)) == data


@virtual
async def test_an_account_has_a_bound_that_two_uploads_at_a_time_do_not_pass(make: Make):
    files = make(max_files="1MiB")
    both = await asyncio.gather(*[put(files, b"x" * 600_000) for _ in range(2)], return_exceptions=True)
    assert sorted(type(each).__name__ for each in both) == ["File", "TooLarge"]
    await put(files, b"x" * 600_000, AccountId("other"))
    (file,) = files.all(LOCAL_ACCOUNT)
    files.remove(file.id, LOCAL_ACCOUNT)
    await put(files, b"x" * 1_000_000)
    with pytest.raises(TooLarge, match="1MiB"):
        await put(files, b"x" * 100_000)


@virtual
async def test_an_account_has_a_bound_of_files_however_small(make: Make):
    files = make(most=3)
    kept = [await put(files, b"") for _ in range(3)]
    with pytest.raises(TooLarge, match="3 files"):
        await put(files, b"")
    await put(files, b"", AccountId("other"))
    files.remove(kept[0].id, LOCAL_ACCOUNT)
    await put(files, b"")


@virtual
async def test_files_are_forgotten_in_their_time_and_their_pieces_with_them(make: Make):
    files = make(keep_s=60.0)
    files.start()
    file = await put(files, b"x" * 20 * PIECE_BYTES)
    await asyncio.sleep(50)
    assert files.get(file.id, LOCAL_ACCOUNT) == file
    await asyncio.sleep(30)
    with pytest.raises(UnknownFile):
        files.get(file.id, LOCAL_ACCOUNT)
    with pytest.raises(UnknownFile):
        await read(files, file)
    files.close()
