"""The catalogue: deploying, names, accounts, versions, and the models that ship with the package."""

import asyncio
import json
import os
import unicodedata
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fornada.core.errors import BadRequest, Conflict, DiskFull, FornadaError, InvalidSpec, ModelNotAllowed, TooLarge, UnknownModel
from fornada.core.names import LOCAL_ACCOUNT, AccountId, Reference, VersionDigest, check_deployable, parse_reference
from fornada.core.specs import ENGINES
from fornada_sdk.runner import engines
from tests.unit.control.packing import MODEL, entry, pack, toml

OTHER = AccountId("other")

DOUBLING = json.dumps(
    {"$defs": {**{f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}, "d40": {}}, "$ref": "#/$defs/d0"}
).encode()


async def deploy(catalog, files=None, *, name=None, account=LOCAL_ACCOUNT, label="stable", **packing):
    bundle = pack(files or {"model.toml": toml(), "model.py": MODEL}, **packing)
    return await catalog.deploy(bundle, name=name, account=account, label=label)


def model(name="@test/a", more="", code=MODEL):
    return {"model.toml": toml(name, more), "model.py": code}


def resolve(catalog, text, account=LOCAL_ACCOUNT):
    return catalog.resolve(parse_reference(text), account)


def names(catalog, account=LOCAL_ACCOUNT):
    return [entry.name for entry in catalog.entries(account)]


def there(*folders):
    return [os.path.isdir(folder) for folder in folders]


# ---- deploying


async def test_a_deployed_model_is_listed_found_and_on_disk_also_after_a_restart(nodes):
    node = nodes()
    version = await deploy(node.catalog, model(more="[settings]\nload_s = 3"))
    assert node.changed == ["@test/a"]
    for each in (node, nodes()):
        assert names(each.catalog) == ["@test/a"]
        found = resolve(each.catalog, "@test/a")
        assert (found.entry.stable, found.version, found.spec.settings) == (version, None, {"load_s": 3})
        assert (Path(version.folder) / "model.py").read_bytes() == MODEL
    assert version.folder == str(node.data_dir / "bundles" / version.digest)
    assert os.stat(version.folder).st_mode & 0o222 == 0


async def test_a_name_means_the_older_version_until_the_new_one_serves(nodes):
    node = nodes()
    older = await deploy(node.catalog, model(more="[serving]\ntimeout_s = 1"))
    newer = await deploy(node.catalog, model(more="[serving]\ntimeout_s = 2"))
    assert resolve(node.catalog, "@test/a").spec == older.spec
    assert resolve(node.catalog, "@test/a:stable").spec == newer.spec
    node.store.set_serving(newer.model, newer.digest)
    node.catalog.reload(newer.model)
    assert resolve(node.catalog, "@test/a").spec == newer.spec


async def test_the_smallest_shape_is_a_model(catalog):
    version = await deploy(catalog, {"greeter/model.py": MODEL, "greeter/requirements.txt": b"tiny==1.0  # all it needs\n"})
    assert (version.model, version.spec.task, version.spec.engine, version.spec.python.entry) == (
        "@local/greeter",
        "custom",
        "python",
        "model.py",
    )
    assert version.lock.startswith("tiny==1.0 --hash=sha256:")
    assert (await deploy(catalog, {"model.py": MODEL}, name="@local/flat")).model == "@local/flat"
    with pytest.raises(InvalidSpec, match="needs a name"):
        await deploy(catalog, {"model.py": MODEL})
    with pytest.raises(InvalidSpec, match="handle_request"):
        await deploy(catalog, {"x/model.py": b"print('hello')\n"})


async def test_a_script_header_is_locked(catalog):
    code = b'# /// script\n# dependencies = ["tiny<2"]\n# ///\n' + MODEL
    assert (await deploy(catalog, {"a/model.py": code})).lock.startswith("tiny==1.0 ")


async def test_the_given_name_beats_the_models_own(catalog):
    version = await deploy(catalog, model("@test/a"), name="@other/b")
    assert (version.model, version.spec.name, names(catalog)) == ("@other/b", "@other/b", ["@other/b"])


async def test_dependencies_are_locked_with_hashes_when_deployed(catalog, keeper):
    version = await deploy(catalog, model(more='[python]\ndependencies = ["tiny"]'))
    assert version.lock.startswith("tiny==2.0 --hash=sha256:")
    assert keeper.kinds() == ["lock"]


async def test_the_lock_of_a_convert_script_lies_beside_it_in_the_bundle(catalog):
    more = f'[[artifacts]]\npath = "m"\nsha256 = "{"a" * 64}"\nconvert = {{ script = "tools/convert.py", dependencies = ["tiny==1.0"] }}\n'
    version = await deploy(catalog, {**model(more=more), "tools/convert.py": b"pass\n"})
    assert (Path(version.folder) / "tools/convert.py.lock").read_text().startswith("tiny==1.0 --hash=")


async def test_equal_files_are_one_version_whenever_and_however_they_are_packed(node):
    files = {**model(), "run.sh": b"#!/bin/sh\n"}
    one = await deploy(node.catalog, files)
    again = await deploy(node.catalog, {f"./folder/{path}": data for path, data in reversed(files.items())})
    assert again == one
    assert [event for event, _ in node.events] == ["catalog.deployed"], "nothing is new the second time"
    assert node.changed == ["@test/a"] * 2, "but what failed before may be tried again"
    assert (await deploy(node.catalog, files, modes={"run.sh": 0o755})).digest != one.digest
    assert (await deploy(node.catalog, {**files, "x": b""})).digest != one.digest
    assert (await deploy(node.catalog, {**files, "model.py": MODEL + b"\n"})).digest != one.digest


async def test_a_second_version_becomes_stable_and_the_first_can_still_be_named(node):
    one = await deploy(node.catalog, model(more="[settings]\nn = 1"))
    two = await deploy(node.catalog, model(more="[settings]\nn = 2"))
    entry = resolve(node.catalog, "@test/a").entry
    assert (entry.stable, entry.previous, entry.versions) == (two, one, (one.digest, two.digest))
    assert node.changed == ["@test/a", "@test/a"]
    first = resolve(node.catalog, f"@test/a:{one.digest[:12]}")
    assert (first.spec.settings, first.version) == ({"n": 1}, one.digest)
    assert resolve(node.catalog, "@test/a:stable").version == two.digest
    assert node.catalog.version(entry.name, one.digest) == one
    back = await deploy(node.catalog, model(more="[settings]\nn = 1"))
    assert back == one and resolve(node.catalog, "@test/a").entry.stable == one


async def test_a_canary_stands_beside_the_stable_version(catalog):
    one = await deploy(catalog)
    with pytest.raises(UnknownModel, match="no canary"):
        resolve(catalog, "@test/a:canary")
    two = await deploy(catalog, model(more="[settings]\nn = 2"), label="canary")
    assert resolve(catalog, "@test/a").entry.stable == one
    assert resolve(catalog, "@test/a:canary").version == two.digest
    with pytest.raises(BadRequest, match="no label"):
        await deploy(catalog, label="latest")


async def test_versions_are_named_by_enough_of_their_digits(catalog):
    version = await deploy(catalog)
    with pytest.raises(UnknownModel, match="no version"):
        resolve(catalog, "@test/a:000000000000")
    assert resolve(catalog, f"@test/a:{version.digest}").version == version.digest
    with pytest.raises(UnknownModel):
        catalog.version(version.model, VersionDigest("0" * 64))


async def test_deploys_of_one_name_come_one_after_the_other_and_of_several_together(node):
    bundles = [model(more=f"[settings]\nn = {number}") for number in range(6)]
    versions = await asyncio.gather(*(deploy(node.catalog, files) for files in bundles))
    entry = resolve(node.catalog, "@test/a").entry
    assert set(entry.versions) == {version.digest for version in versions}
    assert entry.stable.digest == entry.versions[-1]
    await asyncio.gather(*(deploy(node.catalog, model(f"@test/m{number}")) for number in range(6)))
    assert len(names(node.catalog)) == 7


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"model.toml": b"name = "}, "no TOML"),
        ({"model.toml": b"\xff"}, "UTF-8"),
        ({"model.toml": toml()}, r"entry 'model\.py' isn't in the folder"),
        (model(more='[python]\nentry = "other.py"'), r"entry 'other\.py' isn't"),
        (model(more="[serving]\nconcurency = 2"), "did you mean 'concurrency'"),
        (model("a/../b"), r"'\.\.'"),
        (model("@test/load"), "verb"),
        (model(more='[schema]\ninput = "in.json"'), r"'in\.json' isn't in the folder"),
        ({**model(more='[schema]\ninput = "in.json"'), "in.json": b"{"}, "no JSON"),
        ({**model(more='[schema]\ninput = "in.json"'), "in.json": b"[]"}, "no JSON Schema"),
        ({**model(more='[schema]\noutput = "o.json"'), "o.json": b'{"type": "nonsense"}'}, "no JSON Schema"),
        ({**model(more='[schema]\noutput = "o.json"'), "o.json": b'{"$ref": "http://127.0.0.1:9/x"}'}, "no JSON Schema"),
        ({**model(more='[schema]\noutput = "o.json"'), "o.json": b"[" * 100_000}, "no JSON"),
        ({**model(more='[schema]\ninput = "in.json"'), "in.json": DOUBLING}, "too large"),
        (model(more=f'[[artifacts]]\npath="x"\nsha256="{"a" * 64}"\nconvert={{script="c.py"}}'), r"convert script 'c\.py' isn't"),
        ({**model(more=f'[[artifacts]]\npath="x"\nsha256="{"a" * 64}"'), "x": b""}, "also a file of the folder"),
        (model(more=f'[[artifacts]]\npath="x"\nsha256="{"a" * 64}"\n' * 2), "there twice"),
        (model(more='[python]\ndependencies = ["tiny==9.9"]'), r"tiny==9\.9"),
        (model(more='[python]\ndependencies = ["--index-url https://x.example"]'), "options"),
        ({"a/model.py": MODEL, "a/requirements.txt": b"tiny\n-e .\n"}, r"requirements\.txt, line 2: '-e \.'"),
        (model(more='[python]\nversion = "3.99"'), r"3\.99.*there are"),
        ({**model(), "link": entry("link", b"2", "/etc/passwd")}, "leads out"),
    ],
)
async def test_what_is_not_right_is_refused_in_one_line_and_leaves_nothing(node, files, reason):
    with pytest.raises(InvalidSpec, match=reason) as refusal:
        await deploy(node.catalog, files)
    assert "\n" not in refusal.value.message
    assert (names(node.catalog), node.changed) == ([], [])
    assert list((node.data_dir / "bundles").iterdir()) == []


async def test_a_bad_second_deploy_leaves_the_first(node):
    version = await deploy(node.catalog)
    with pytest.raises(InvalidSpec):
        await deploy(node.catalog, model(more="[serving]\nqueue = -1"))
    assert resolve(node.catalog, "@test/a").entry.stable == version
    assert node.changed == ["@test/a"]


async def test_a_bundle_that_is_too_large_is_refused(catalog):
    with pytest.raises(TooLarge):
        await deploy(catalog, {"model.py": b"x" * 300_000_000}, name="a")


async def test_a_budget_refuses_a_deploy_with_the_numbers_and_leaves_nothing(nodes):
    node = nodes(disk_budget="1MB")
    with pytest.raises(DiskFull, match=r"its budget of 976\.6 KiB, this bundle needs 1\.9 MiB more"):
        await deploy(node.catalog, {**model(), "weights": b"x" * 2_000_000})
    assert (names(node.catalog), list((node.data_dir / "bundles").iterdir())) == ([], [])
    await deploy(node.catalog)


# ---- names


@pytest.mark.parametrize(
    "name",
    [
        "plain",
        "org/name",
        "@cf/org/name",
        "v1.5",
        "a.b/c.d-e_f",
        "日本/モデル",
        "caf\u00e9",
        "cafe\u0301",
        "emoji/🍞",
        "a b",
        "A/B",
        "@x/y+z~1",
    ],
)
async def test_list_get_run_and_delete_agree_on_a_name(node, name):
    catalog = node.catalog
    version = await deploy(catalog, model("@ignored/x"), name=name)
    listed = names(catalog)
    assert listed == [unicodedata.normalize("NFC", name)] == [version.model]
    for spelling in (name, unicodedata.normalize("NFC", name), unicodedata.normalize("NFD", name), f"{name}/", f"{name}:stable"):
        assert resolve(catalog, spelling).entry.name == listed[0]
    await catalog.remove(parse_reference(unicodedata.normalize("NFD", name)), account=LOCAL_ACCOUNT)
    assert names(catalog) == []
    with pytest.raises(UnknownModel, match="No such model"):
        resolve(catalog, name)
    with pytest.raises(UnknownModel):
        await catalog.remove(parse_reference(name), account=LOCAL_ACCOUNT)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.text(min_size=1, max_size=30))
def test_every_name_that_can_be_deployed_is_found_again(name):
    try:
        own = check_deployable(name)
        reference = parse_reference(own)
    except FornadaError:
        return
    assert unicodedata.normalize("NFC", reference.name) == own.strip("/")


async def test_a_mistyped_name_is_told_the_one_that_was_meant_of_those_that_the_caller_may_see(catalog):
    await deploy(catalog, model("@test/private", 'visibility = "account"\naliases = ["@cf/x/hidden"]'))
    for mistyped, meant in (("@test/privat", "@test/private"), ("@cf/x/hiden", "@cf/x/hidden")):
        with pytest.raises(UnknownModel, match=f"No such model {mistyped} or task; did you mean '{meant}'\\?"):
            resolve(catalog, mistyped)
        with pytest.raises(UnknownModel, match=r"or task$"):
            resolve(catalog, mistyped, OTHER)
        with pytest.raises(UnknownModel, match=f"did you mean '{meant}'"):
            await catalog.remove(parse_reference(mistyped), account=LOCAL_ACCOUNT)


async def test_aliases_lead_to_their_model_and_a_name_beats_an_alias(catalog):
    await deploy(catalog, model("@test/a", 'aliases = ["@cf/x/y", "@test/a", "@cf/x/y"]'))
    assert resolve(catalog, "@cf/x/y").entry.name == "@test/a"
    assert resolve(catalog, "@test/a").spec.aliases == ["@cf/x/y"]
    await deploy(catalog, model("@cf/x/y"))
    assert resolve(catalog, "@cf/x/y").entry.name == "@cf/x/y"
    await catalog.remove(Reference(resolve(catalog, "@cf/x/y").entry.name), account=LOCAL_ACCOUNT)
    assert resolve(catalog, "@cf/x/y").entry.name == "@test/a"


async def test_an_alias_that_means_another_model_is_refused_naming_its_owner(node):
    catalog = node.catalog
    await deploy(catalog, model("@test/a", 'aliases = ["x"]'))
    with pytest.raises(Conflict, match="alias 'x' belongs to '@test/a'"):
        await deploy(catalog, model("@test/b", 'aliases = ["x"]'))
    with pytest.raises(Conflict, match="alias '@test/a' is the name of another model"):
        await deploy(catalog, model("@test/b", 'aliases = ["@test/a"]'))
    await deploy(catalog, model("@test/a", 'aliases = ["x", "y"]'))
    await deploy(catalog, model("@test/a", 'aliases = ["y"]'))
    await deploy(catalog, model("@test/b", 'aliases = ["x"]'))


async def test_nobody_takes_what_is_asked_of_another_accounts_model(catalog):
    await deploy(catalog, model("@test/a", 'aliases = ["x"]'))
    with pytest.raises(ModelNotAllowed, match="'x' belongs to another account"):
        await deploy(catalog, model("x"), account=OTHER)
    assert resolve(catalog, "x", OTHER).entry.name == "@test/a"


def test_the_runner_has_a_module_for_each_engine():
    modules = {path.stem for path in Path(engines.__file__).parent.glob("*.py")}
    assert set(ENGINES) <= modules


async def test_two_models_that_want_one_alias_at_the_same_time_do_not_both_get_it(catalog):
    wanted = ['aliases = ["x"]\n[python]\ndependencies = ["tiny==1.0"]'] * 2
    done = await asyncio.gather(*(deploy(catalog, model(f"@test/{n}", more)) for n, more in enumerate(wanted)), return_exceptions=True)
    assert sorted(type(one).__name__ for one in done) == ["Conflict", "Version"]


async def test_a_model_is_not_removed_by_an_alias(catalog):
    await deploy(catalog, model("@test/a", 'aliases = ["x"]'))
    with pytest.raises(Conflict, match="'x' is an alias of '@test/a'"):
        await catalog.remove(parse_reference("x"), account=LOCAL_ACCOUNT)


# ---- accounts


async def test_in_open_mode_everybody_sees_a_model_unless_it_says_otherwise(catalog):
    await deploy(catalog, model("@test/shared"))
    await deploy(catalog, model("@test/private", 'visibility = "account"'))
    assert names(catalog, OTHER) == ["@test/shared"]
    assert names(catalog) == ["@test/private", "@test/shared"]
    with pytest.raises(ModelNotAllowed):
        resolve(catalog, "@test/private", OTHER)


async def test_with_keys_a_model_is_its_accounts_unless_it_says_otherwise(nodes):
    catalog = nodes(open_mode=False).catalog
    await deploy(catalog, model("@test/mine"))
    await deploy(catalog, model("@test/shared", 'visibility = "node"'))
    assert names(catalog, OTHER) == ["@test/shared"]
    with pytest.raises(ModelNotAllowed):
        resolve(catalog, "@test/mine", OTHER)
    assert resolve(catalog, "@test/shared", OTHER).entry.account == LOCAL_ACCOUNT


async def test_a_name_of_another_account_can_neither_be_deployed_nor_removed(node):
    await deploy(node.catalog)
    with pytest.raises(ModelNotAllowed, match="belongs to another account"):
        await deploy(node.catalog, model(more="[settings]\nn = 1"), account=OTHER)
    with pytest.raises(ModelNotAllowed):
        await node.catalog.remove(parse_reference("@test/a"), account=OTHER)
    assert names(node.catalog) == ["@test/a"]
    assert len(list((node.data_dir / "bundles").iterdir())) == 1


# ---- removing


async def test_a_removed_model_is_forgotten_and_its_name_is_free(node):
    await deploy(node.catalog)
    node.store.set_counters("@test/a", loads=4, attempts=2)
    await node.catalog.remove(parse_reference("@test/a"), account=LOCAL_ACCOUNT)
    assert node.changed == ["@test/a", "@test/a"]
    assert node.catalog.entry("@test/a") is None
    assert node.store.counters("@test/a") == (0, 0)
    await deploy(node.catalog, account=OTHER)


async def test_a_version_can_be_removed_but_not_the_stable_one_among_several(catalog):
    one = await deploy(catalog, model(more="[settings]\nn = 1"))
    two = await deploy(catalog, model(more="[settings]\nn = 2"))
    with pytest.raises(Conflict, match="stable"):
        await catalog.remove(parse_reference(f"@test/a:{two.digest[:12]}"), account=LOCAL_ACCOUNT)
    await catalog.remove(parse_reference(f"@test/a:{one.digest[:12]}"), account=LOCAL_ACCOUNT)
    assert resolve(catalog, "@test/a").entry.versions == (two.digest,)
    await catalog.remove(parse_reference("@test/a:stable"), account=LOCAL_ACCOUNT)
    assert names(catalog) == []


# ---- models that ship with the package


@pytest.fixture
def shipped(tmp_path):
    root = tmp_path / "models"
    for name, more in (("one", 'aliases = ["@cf/one"]'), ("two", "")):
        folder = root / name
        (folder / "__pycache__").mkdir(parents=True)
        (folder / "model.toml").write_bytes(toml(f"@fornada/{name}", more))
        (folder / "model.py").write_bytes(MODEL)
        (folder / "__pycache__/x.pyc").write_bytes(b"x")
    (root / "broken").mkdir()
    (root / "broken/model.toml").write_text("name = ")
    (root / "unlocked").mkdir()
    (root / "unlocked/model.toml").write_bytes(toml("@fornada/unlocked", '[python]\ndependencies = ["tiny"]'))
    (root / "unlocked/model.py").write_bytes(MODEL)
    return root


async def test_shipped_models_are_there_from_the_start_and_belong_to_nobody(nodes, shipped, keeper):
    node = nodes(builtin=shipped, open_mode=False)
    assert names(node.catalog, OTHER) == ["@fornada/one", "@fornada/two"]
    entry = resolve(node.catalog, "@cf/one", OTHER).entry
    assert (entry.name, entry.stable.builtin, entry.stable.folder) == ("@fornada/one", True, str(shipped / "one"))
    assert keeper.asked == []
    assert [(event, fields["folder"]) for event, fields in node.events] == [
        ("catalog.builtin_refused", "broken"),
        ("catalog.builtin_refused", "unlocked"),
    ]


async def test_a_shipped_models_digest_is_that_of_its_files(nodes, shipped):
    before = resolve(nodes(builtin=shipped).catalog, "@fornada/one").entry.stable.digest
    assert resolve(nodes(builtin=[shipped / "one"]).catalog, "@fornada/one").entry.stable.digest == before
    (shipped / "one/model.py").write_bytes(MODEL + b"\n")
    assert resolve(nodes(builtin=shipped).catalog, "@fornada/one").entry.stable.digest != before


async def test_a_shipped_model_can_neither_be_overwritten_nor_removed_but_its_alias_can_be_taken(nodes, shipped):
    catalog = nodes(builtin=shipped).catalog
    with pytest.raises(Conflict, match="ships with Fornada"):
        await deploy(catalog, model("@fornada/one"))
    with pytest.raises(Conflict, match="ships with Fornada"):
        await catalog.remove(parse_reference("@fornada/one"), account=LOCAL_ACCOUNT)
    with pytest.raises(Conflict, match="alias '@cf/one' belongs to '@fornada/one'"):
        await deploy(catalog, model("@test/a", 'aliases = ["@cf/one"]'))
    await deploy(catalog, model("@cf/one"))
    assert not resolve(catalog, "@cf/one").entry.stable.builtin


async def test_a_label_or_a_pin_that_somebody_else_set_is_seen_after_a_reload(nodes, shipped):
    node = nodes(builtin=shipped)
    one = await deploy(node.catalog, model(more="[settings]\nn = 1"))
    await deploy(node.catalog, model(more="[settings]\nn = 2"))
    node.store.set_label("@test/a", label="stable", digest=one.digest)
    node.store.set_pinned("@fornada/one", pinned=True)
    node.catalog.reload("@test/a")
    assert resolve(node.catalog, "@test/a").entry.stable == one
    assert node.catalog.entry("@fornada/one").pinned
    assert node.catalog.entry("@fornada/two").pinned is False


# ---- prune


async def test_a_prune_removes_what_no_version_needs(nodes):
    node = nodes()
    kept = await deploy(node.catalog, model("@test/kept", '[python]\ndependencies = ["tiny==1.0"]'))
    gone = await deploy(node.catalog, model("@test/gone", '[python]\ndependencies = ["tiny==2.0"]'))
    environments = [await node.provision.environment(version, print) for version in (kept, gone)]
    await node.catalog.remove(parse_reference("@test/gone"), account=LOCAL_ACCOUNT)
    assert (await node.catalog.prune()).removed.get("environments") is None, "it was handed out a moment ago"
    later = nodes()
    pruned = await later.catalog.prune()
    assert (pruned.removed["environments"], pruned.removed["bundles"]) == (1, 1)
    assert pruned.freed_bytes > 0
    assert there(*environments) == [True, False]
    assert there(kept.folder, gone.folder) == [True, False]
