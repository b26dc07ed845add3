"""A sum is no key: whoever names the sha256 of another account's weights gets them from its own sources, or not at all."""

import asyncio
import hashlib
import os
from pathlib import Path

import msgspec
import pytest

from fornada.core.errors import LoadFailed
from fornada.core.names import AccountId

CONTENT = bytes(range(256)) * 4000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
ALPHA, BETA = AccountId("alpha"), AccountId("beta")
SCRIPT = "import pathlib, sys; pathlib.Path(sys.argv[2]).write_bytes(pathlib.Path(__file__).with_name('note').read_bytes())"


@pytest.fixture
def version(version_of):
    """A version of an account's, with one artifact from the given sources."""

    def make(account, *sources, files=None, convert=None, builtin=False):
        artifact = {"path": "w.bin", "sha256": SHA256, "source": list(sources), **({"convert": convert} if convert else {})}
        made = version_of(artifacts=[artifact], files=files)
        return msgspec.structs.replace(made, account=account, builtin=builtin)

    return make


@pytest.fixture
def theirs(tmp_path):
    """Alpha's weights."""
    path = tmp_path / "theirs.bin"
    path.write_bytes(CONTENT)
    return path


async def fetched(provisioner, version, steps):
    ((_, place),) = (await provisioner.artifacts(version, steps)).items()
    return Path(place)


def read(place):
    return Path(place).read_bytes()


def remove(path):
    path.unlink()


def inode(place):
    return os.stat(place).st_ino


async def test_the_sum_alone_gives_nobody_the_file(provisioners, version, steps, theirs):
    provisioner = provisioners()
    await fetched(provisioner, version(ALPHA, f"file:{theirs}"), steps)
    with pytest.raises(LoadFailed) as without:
        await fetched(provisioner, version(BETA), steps)
    with pytest.raises(LoadFailed) as wrong:
        await fetched(provisioner, version(BETA, "file:/nowhere/x"), steps)
    assert "it has no source" in str(without.value) and "no such file" in str(wrong.value)
    nobody = provisioners(data_dir=provisioner._data_dir.with_name("empty"))
    with pytest.raises(LoadFailed) as absent:
        await fetched(nobody, version(BETA), steps)
    assert str(absent.value) == str(without.value), "nor tells that it is there"


async def test_who_brings_the_same_file_shares_the_one_copy_and_needs_no_source_again(provisioners, version, steps, theirs):
    provisioner = provisioners()
    first = await fetched(provisioner, version(ALPHA, f"file:{theirs}"), steps)
    before = inode(first)
    second = await fetched(provisioner, version(BETA, f"file:{theirs}"), steps)
    assert inode(first) == inode(second) == before, "who has the file open goes on with the same one"
    remove(theirs)
    later = provisioners()
    for account in (ALPHA, BETA):
        assert read(await fetched(later, version(account), steps)) == CONTENT


async def test_who_asks_while_another_account_fetches_has_to_fetch_too(provisioners, version, steps, web):
    web.files["/x"] = CONTENT
    provisioner = provisioners(offline=False)
    ours = asyncio.create_task(fetched(provisioner, version(ALPHA, f"{web.url}/x"), steps))
    with pytest.raises(LoadFailed):
        await fetched(provisioner, version(BETA), steps)
    assert read(await ours) == CONTENT


async def test_the_beginning_that_another_account_has_fetched_is_not_gone_on_with(provisioners, version, steps, web):
    """Or whoever knows its end would have the whole."""
    web.files["/x"] = CONTENT
    web.break_after = [len(CONTENT) // 2] * 20
    provisioner = provisioners(offline=False)
    with pytest.raises(LoadFailed):
        await fetched(provisioner, version(ALPHA, f"{web.url}/x"), steps)
    web.break_after = []
    web.asked.clear()
    assert read(await fetched(provisioner, version(BETA, f"{web.url}/x"), steps)) == CONTENT
    assert ["range" in asked.headers for asked in web.asked] == [False]


async def test_a_source_that_takes_its_time_holds_up_no_other_account(provisioners, version, steps, web):
    web.files["/x"] = CONTENT
    web.pause_s = 30.0
    provisioner = provisioners(offline=False)
    slow = asyncio.create_task(fetched(provisioner, version(BETA, f"{web.url}/x"), steps))
    while not web.asked:
        await asyncio.sleep(0.01)
    web.pause_s = 0.0
    assert read(await fetched(provisioner, version(ALPHA, f"{web.url}/x"), steps)) == CONTENT
    assert not slow.done()
    slow.cancel()
    await asyncio.wait({slow})


async def test_weights_that_ship_with_the_node_are_everybodys(provisioners, version, steps, theirs):
    provisioner = provisioners()
    await fetched(provisioner, version(ALPHA, f"file:{theirs}", builtin=True), steps)
    assert read(await fetched(provisioners(), version(BETA), steps)) == CONTENT


async def test_what_the_operators_mirror_has_is_everybodys(provisioners, version, steps, tmp_path, theirs):
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / "some.bin").write_bytes(CONTENT)
    provisioner = provisioners(mirror=str(tmp_path / "mirror"))
    for account in (ALPHA, BETA):
        assert read(await fetched(provisioner, version(account), steps)) == CONTENT


async def test_what_a_script_made_is_its_accounts_alone(provisioners, version, steps, theirs):
    """The same script and input: what lies beside the script is each account's own, and so is what it makes of it."""
    convert = {"script": "convert.py", "dependencies": []}
    provisioner = provisioners()

    def with_note(account, note, *sources):
        return version(account, *sources, convert=convert, files={"convert.py": SCRIPT.encode(), "note": note})

    assert read(await fetched(provisioner, with_note(ALPHA, b"alpha's", f"file:{theirs}"), steps)) == b"alpha's"
    with pytest.raises(LoadFailed, match="no source"):
        await fetched(provisioner, with_note(BETA, b"beta's"), steps)
    assert read(await fetched(provisioner, with_note(BETA, b"beta's", f"file:{theirs}"), steps)) == b"beta's"


async def test_a_proof_goes_with_the_file(provisioners, version, steps, theirs, proofs):
    provisioner = provisioners()
    wanted = version(ALPHA, f"file:{theirs}")
    place = await fetched(provisioner, wanted, steps)
    await provisioner.close()
    later = provisioners()
    later.referenced = lambda: [wanted]
    await later.prune()
    assert proofs.has_proved(ALPHA, SHA256) and place.exists()
    later.referenced = tuple
    await later.prune()
    assert not proofs.has_proved(ALPHA, SHA256) and not place.exists()


@pytest.mark.parametrize(("owners", "made_again"), [([ALPHA], 0), ([ALPHA, BETA], 2)])
async def test_a_result_of_an_earlier_release_stays_with_the_only_account_that_has_it(
    owners, made_again, provisioners, version, steps, theirs, keeper
):
    """Its name had no account, as names of what ships have none."""
    convert = {"script": "convert.py", "dependencies": []}
    versions = {
        whose: version(whose, f"file:{theirs}", convert=convert, files={"convert.py": SCRIPT.encode(), "note": whose.encode()})
        for whose in owners
    }
    await fetched(provisioners(), msgspec.structs.replace(versions[ALPHA], builtin=True), steps)
    later = provisioners()
    later.referenced = lambda: list(versions.values())
    await later.start()
    before = keeper.kinds().count("convert")
    for whose, wanted in versions.items():
        assert read(await fetched(later, wanted, steps)) == whose.encode()
    assert keeper.kinds().count("convert") - before == made_again
