"""Fine-tunes: whose they are, which of a name is meant, what a file must be, and what a death leaves of them."""

import asyncio
import itertools
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fornada.control.finetunes import SWEEP_S, Finetunes
from fornada.core.errors import BadRequest, DiskFull, FinetuneIncomplete, TooLarge, TooManyFinetunes, UnknownFinetune
from fornada.core.finetunes import CONFIG, WEIGHTS, Finetune, base_folder, check_file
from fornada.core.names import LOCAL_ACCOUNT, AccountId, ModelName
from fornada.core.settings import FinetuneSettings
from fornada.node.provision.adapters import Adapters
from fornada.node.provision.disk import Disk
from fornada.store.sqlite import SqliteStore
from tests.bounds import count
from tests.harness.adapters import config, weights
from tests.loops.virtual import VirtualClock, virtual
from tests.unit.edge.fake_finetunes import Silent

MODEL = ModelName("@test/chat")
OTHER = AccountId("other")
Make = Callable[..., Finetunes]


async def nothing() -> None:
    return None


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    store = SqliteStore(tmp_path / "store.sqlite")
    yield partial(finetunes_in, store, tmp_path)
    store.close()


def finetunes_in(
    store: SqliteStore, folder: Path, *, budget: int = 0, make_room: Callable[[], Awaitable[object]] = nothing, **settings: Any
) -> Finetunes:
    ids = (f"00000000-0000-4000-8000-{number:012x}" for number in itertools.count(len(store.finetune_ids())))
    files = Adapters(folder, disk=Disk(folder, budget=budget, make_room=make_room))
    clock = VirtualClock()
    return Finetunes(store=store, files=files, clock=clock, log=Silent(), settings=FinetuneSettings(**settings), new_id=lambda: next(ids))


def create(finetunes: Finetunes, name: str = "mine", *, account: AccountId = LOCAL_ACCOUNT, public: bool = False) -> Finetune:
    return finetunes.create(account, model=MODEL, name=name, description="", public=public)


async def fill(finetunes: Finetunes, finetune: Finetune) -> None:
    await finetunes.upload(finetune.id, finetune.account, file=CONFIG, data=config())
    await finetunes.upload(finetune.id, finetune.account, file=WEIGHTS, data=weights())


async def test_a_fine_tune_is_found_once_both_its_files_are_there(make: Make, tmp_path: Path):
    finetunes = make()
    made = create(finetunes)
    with pytest.raises(FinetuneIncomplete):
        finetunes.find(LOCAL_ACCOUNT, "mine")
    await finetunes.upload(made.id, LOCAL_ACCOUNT, file=CONFIG, data=config())
    with pytest.raises(FinetuneIncomplete):
        finetunes.find(LOCAL_ACCOUNT, made.id)
    await finetunes.upload(made.id, LOCAL_ACCOUNT, file=WEIGHTS, data=weights())
    assert finetunes.find(LOCAL_ACCOUNT, "mine").id == finetunes.find(LOCAL_ACCOUNT, made.id).id == made.id
    folder = tmp_path / "finetunes" / base_folder(MODEL) / made.id
    assert {file.name: (file.read_bytes(), file.stat().st_mode & 0o777) for file in folder.iterdir()} == {
        CONFIG: (config(), 0o644),
        WEIGHTS: (weights(), 0o644),
    }


async def test_a_fine_tune_is_its_account_s_alone_unless_it_is_public(make: Make):
    finetunes = make()
    mine, shared = create(finetunes), create(finetunes, "shared", public=True)
    for each in (mine, shared):
        await fill(finetunes, each)
    for named in ("mine", mine.id, "no such"):
        with pytest.raises(UnknownFinetune):
            finetunes.find(OTHER, named)
    assert finetunes.find(OTHER, "shared").id == finetunes.find(OTHER, shared.id).id == shared.id
    assert finetunes.all(OTHER) == []
    assert [each.id for each in finetunes.public()] == [shared.id]
    for id in (mine.id, shared.id):
        with pytest.raises(UnknownFinetune):
            await finetunes.upload(id, OTHER, file=CONFIG, data=config())
        with pytest.raises(UnknownFinetune):
            await finetunes.remove(id, OTHER)


async def test_nobody_can_push_in_front_of_a_public_name(make: Make):
    finetunes = make()
    first = create(finetunes, "tone", public=True)
    await fill(finetunes, first)
    later = create(finetunes, "tone", account=OTHER, public=True)
    await fill(finetunes, later)
    assert finetunes.find(AccountId("third"), "tone").id == first.id
    assert finetunes.find(OTHER, "tone").id == later.id, "one's own comes first"


async def test_the_account_s_newest_whole_one_of_a_name_is_meant(make: Make):
    finetunes = make()
    old = create(finetunes)
    await fill(finetunes, old)
    new = create(finetunes)
    assert finetunes.find(LOCAL_ACCOUNT, "mine").id == old.id, "one that was begun and never filled is in nobody's way"
    await fill(finetunes, new)
    assert finetunes.find(LOCAL_ACCOUNT, "mine").id == new.id


async def test_an_account_has_so_many_and_a_file_is_so_long(make: Make):
    finetunes = make(max_per_account=2, max_file="1KiB")
    made = create(finetunes)
    create(finetunes)
    create(finetunes, account=OTHER)
    with pytest.raises(TooManyFinetunes, match="2"):
        create(finetunes)
    with pytest.raises(TooLarge, match="1KiB"):
        await finetunes.upload(made.id, LOCAL_ACCOUNT, file=WEIGHTS, data=weights(width=64))
    await finetunes.remove(made.id, LOCAL_ACCOUNT)
    create(finetunes)


async def test_a_file_counts_in_the_disk_budget(make: Make, tmp_path: Path):
    finetunes = make(budget=1 << 20)
    made = create(finetunes)
    await finetunes.upload(made.id, LOCAL_ACCOUNT, file=CONFIG, data=config())
    with pytest.raises(DiskFull, match="a fine-tune needs"):
        await finetunes.upload(made.id, LOCAL_ACCOUNT, file=WEIGHTS, data=weights(width=1 << 15))
    assert not list((tmp_path / "finetunes").rglob("*.safetensors"))


async def test_what_a_kill_left_is_removed_by_a_start_a_week_later(make: Make, tmp_path: Path):
    finetunes = make()
    kept, gone, lately = create(finetunes), create(finetunes), create(finetunes)
    for each in (kept, gone, lately):
        await fill(finetunes, each)
    for each in (gone, lately):
        finetunes._store.remove_finetune(each.id)  # killed before the folder went, or another store was restored
    base = tmp_path / "finetunes" / base_folder(MODEL)
    begun, forgotten = base / kept.id / ".tmp-adapter_config.json-00000000", base / kept.id / ".tmp-adapter_config.json-00000001"
    for file in (begun, forgotten):
        file.write_bytes(b"{")
    week_ago = time.time() - 8 * 86400
    for path in (forgotten, base / kept.id, base / gone.id):
        os.utime(path, (week_ago, week_ago))
    finetunes = make()
    finetunes.start()
    await finetunes.close()
    assert {path.name for path in base.iterdir()} == {kept.id, lately.id}
    assert begun.exists(), "an upload of the other control plane may be under way"
    assert not forgotten.exists()
    assert finetunes.find(LOCAL_ACCOUNT, kept.id)


async def test_whoever_deletes_one_under_its_uploads_wins(make: Make, tmp_path: Path):
    finetunes = make()
    data = weights(width=1 << 14)
    for _ in range(count(10, long=100)):
        made = create(finetunes)
        await finetunes.upload(made.id, LOCAL_ACCOUNT, file=CONFIG, data=config())
        uploads = [finetunes.upload(made.id, LOCAL_ACCOUNT, file=file, data=data) for file in (WEIGHTS, WEIGHTS, WEIGHTS)]
        *ends, removed = await asyncio.gather(*uploads, finetunes.remove(made.id, LOCAL_ACCOUNT), return_exceptions=True)
        assert removed is None
        assert {type(end) for end in ends} <= {Finetune, UnknownFinetune}, ends
        assert not list((tmp_path / "finetunes" / base_folder(MODEL)).iterdir())


@virtual
async def test_what_a_kill_left_goes_without_another_start(make: Make, tmp_path: Path):
    finetunes = make()
    made = create(finetunes)
    await fill(finetunes, made)
    left = tmp_path / "finetunes" / base_folder(MODEL) / made.id / ".tmp-adapter_model.safetensors-00000000"
    left.write_bytes(b"half of it")
    finetunes.start()
    await asyncio.sleep(3 * SWEEP_S)
    assert left.exists(), "by the disk's clock it is new"
    hours_ago = time.time() - 2 * 3600
    os.utime(left, (hours_ago, hours_ago))
    await asyncio.sleep(SWEEP_S)
    assert not left.exists()
    await finetunes.close()
    assert finetunes.find(LOCAL_ACCOUNT, made.id)


BAD = [
    ("weights.bin", b"x", "file_name"),
    ("../adapter_config.json", config(), "file_name"),
    (CONFIG, b"", "JSON"),
    (CONFIG, b"[]", "JSON"),
    (CONFIG, b"{" * 100_000, "JSON"),
    (CONFIG, config(r=33), "'r'"),
    (CONFIG, config(r=0), "'r'"),
    (CONFIG, config(r=True), "'r'"),
    (CONFIG, config(r="8"), "'r'"),
    (CONFIG, config(model_type="bert"), "model_type"),
    (CONFIG, config(peft_type="IA3"), "peft_type"),
    (WEIGHTS, b"", "header"),
    (WEIGHTS, b"Example data", "header"),
    (WEIGHTS, (2**63).to_bytes(8, "little") + b"{}", "header"),
    (WEIGHTS, (2).to_bytes(8, "little") + b"[]", "header"),
    (WEIGHTS, (2).to_bytes(8, "little") + b"{}", "no adapter"),
    (WEIGHTS, weights()[:-1], "end"),
    (WEIGHTS, weights() + b"x", "end"),
    (WEIGHTS, weights(rank=64), "rank 64"),
    (WEIGHTS, weights(x={"dtype": "F32", "shape": [1], "data_offsets": [1024, 1028]}), "end"),
    (WEIGHTS, weights(x={"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [1024, 1028]}), "'x'"),
    (WEIGHTS, weights(x={"dtype": "F32", "shape": [-1, -1], "data_offsets": [1024, 1028]}), "'x'"),
    (WEIGHTS, weights(x={"dtype": "Q4_0", "shape": [], "data_offsets": [0, 0]}), "'x'"),
    (WEIGHTS, weights(x={"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}), "doesn't lie"),
    (WEIGHTS, weights(x="F32"), "header"),
]


@pytest.mark.parametrize(("file", "data", "told"), BAD)
def test_what_is_no_part_of_an_adapter_is_told_by_its_fault(file: str, data: bytes, told: str):
    with pytest.raises(BadRequest, match=told):
        check_file(file, data, most_rank=32)


def test_what_peft_writes_is_taken():
    check_file(CONFIG, config(), most_rank=8)
    check_file(CONFIG, config(model_type="llama"), most_rank=8)
    check_file(WEIGHTS, weights(), most_rank=8)
    check_file(WEIGHTS, weights(x={"dtype": "F32", "shape": [0], "data_offsets": [1024, 1024]}), most_rank=8)
