"""Unpacking what strangers packed."""

import gzip
import io
import os
import tarfile
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fornada.control.bundle import read_bundle
from fornada.core.errors import FornadaError, InvalidSpec, TooLarge
from tests.unit.control.packing import MODEL, bomb, entry, extended, pack, toml

MIB = 1024 * 1024


def files_of(bundle):
    return {path: file.data for path, file in read_bundle(bundle).files.items()}


def test_files_come_out_with_relative_names():
    bundle = pack({"./model.toml": toml(), "./sub//dir/x.bin": b"x", "model.py": MODEL})
    assert files_of(bundle) == {"model.toml": toml(), "sub/dir/x.bin": b"x", "model.py": MODEL}
    assert read_bundle(bundle).top == ""


def test_the_folder_that_was_packed_is_taken_off_and_remembered():
    bundle = read_bundle(pack({"greeter/model.py": MODEL, "greeter/data/x": b"x"}))
    assert (bundle.top, sorted(bundle.files)) == ("greeter", ["data/x", "model.py"])


def test_the_executable_bit_stays_and_nothing_else_of_the_mode():
    bundle = pack({"model.py": MODEL, "run.sh": b"#!/bin/sh\n"}, modes={"model.py": 0o4777, "run.sh": 0o755})
    assert {path: file.executable for path, file in read_bundle(bundle).files.items()} == {"model.py": True, "run.sh": True}
    assert not read_bundle(pack({"model.py": MODEL})).files["model.py"].executable


def test_what_never_belongs_to_a_model_is_left_out():
    junk = ["__pycache__/model.cpython-311.pyc", "a/__pycache__/x", "x.pyc", ".git/config", ".DS_Store", "._model.py", "__MACOSX/x"]
    assert files_of(pack({"model.py": MODEL, **dict.fromkeys(junk, b"junk")})) == {"model.py": MODEL}


def test_names_are_composed():
    assert "caf\u00e9.txt" in files_of(pack({"model.py": MODEL, "cafe\u0301.txt": b"x"}))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../x", "leads out"),
        ("a/../../x", "leads out"),
        ("a/..", "leads out"),
        ("/etc/cron.d/x", "absolute"),
        ("a\\..\\x", "backslash"),
        ("a\nb", "control character"),
        ("/".join("a" * 40), "too deep"),
        ("a" * 300, "too long"),
        ("/".join(["a" * 100] * 6), "too long"),
    ],
)
def test_a_path_that_leads_out_or_is_none_is_refused_naming_it(name, reason):
    with pytest.raises(InvalidSpec, match=reason) as refusal:
        read_bundle(pack({"model.py": MODEL, name: b"x"}))
    assert "\n" not in refusal.value.message


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, b"9"])
def test_what_is_no_plain_file_is_refused(kind):
    bundle = pack({"model.py": MODEL, "device": entry("device", kind)})
    with pytest.raises(InvalidSpec, match="'device', which is no plain file"):
        read_bundle(bundle)


@pytest.mark.parametrize("target", ["/etc/passwd", "../x", "a/../../x", "..", "nothing", "."])
def test_a_link_out_of_the_folder_or_to_nothing_is_refused(target):
    with pytest.raises(InvalidSpec, match="link"):
        read_bundle(pack({"model.py": MODEL, "link": entry("link", tarfile.SYMTYPE, target)}))


def test_a_hard_link_out_of_the_folder_is_refused():
    for target in ("/etc/passwd", "../x", "nothing"):
        with pytest.raises(InvalidSpec):
            read_bundle(pack({"model.py": MODEL, "link": entry("link", tarfile.LNKTYPE, target)}))


def test_links_inside_become_copies():
    bundle = pack(
        {
            "deep/link": entry("deep/link", tarfile.SYMTYPE, "../model.py"),
            "second": entry("second", tarfile.SYMTYPE, "deep/link"),
            "model.py": MODEL,
            "hard": entry("hard", tarfile.LNKTYPE, "./model.py"),
        }
    )
    assert files_of(bundle) == dict.fromkeys(["deep/link", "second", "model.py", "hard"], MODEL)


def test_links_in_a_circle_are_refused():
    with pytest.raises(InvalidSpec, match="link"):
        read_bundle(pack({"model.py": MODEL, "a": entry("a", tarfile.SYMTYPE, "b"), "b": entry("b", tarfile.SYMTYPE, "a")}))


def test_a_file_through_a_link_is_refused():
    bundle = pack({"model.py": MODEL, "out": entry("out", tarfile.SYMTYPE, "/tmp"), "out/x": b"x"})
    with pytest.raises(InvalidSpec):
        read_bundle(bundle)


def test_the_same_path_twice_is_refused_however_it_is_written():
    for other in ("model.py", "./model.py", ".//model.py"):
        with pytest.raises(InvalidSpec, match=r"'model\.py' twice"):
            read_bundle(two_entries("model.py", other))


def two_entries(one, other):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path in (one, other):
            made = tarfile.TarInfo(path)
            made.size = len(MODEL)
            archive.addfile(made, io.BytesIO(MODEL))
    return packed.getvalue()


def test_a_path_that_is_file_and_folder_is_refused():
    with pytest.raises(InvalidSpec, match="both as a file and as a folder"):
        read_bundle(pack({"model.py": MODEL, "a": b"x", "a/b": b"y"}))


def test_a_bomb_is_refused_before_it_takes_memory():
    bundle = bomb(400_000_000)
    assert len(bundle) < 500_000
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge, match="unpacks to more than 1 MiB"):
            read_bundle(bundle, largest=MIB)
        assert tracemalloc.get_traced_memory()[1] < 64 * MIB
    finally:
        tracemalloc.stop()


def test_a_header_that_announces_gigabytes_takes_no_memory():
    lie = tarfile.TarInfo("x")
    lie.size = 10**12
    with pytest.raises(TooLarge):
        read_bundle(gzip.compress(lie.tobuf()))
    long_name = tarfile.TarInfo("././@LongLink")
    long_name.type = tarfile.GNUTYPE_LONGNAME
    long_name.size = 10**10
    with pytest.raises((TooLarge, InvalidSpec)):
        read_bundle(gzip.compress(long_name.tobuf() + b"a" * 512))


@pytest.mark.parametrize(("extensions", "size"), [(0, 8 * MIB), (3000, 0)], ids=["a list of holes", "extensions of extensions"])
def test_a_header_that_unfolds_in_memory_is_refused(extensions, size):
    packed = extended(tarfile.XHDTYPE, extensions=extensions, size=size)
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge, match=r"header takes more than 64 KiB"):
            read_bundle(packed)
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()


def test_copies_by_links_count():
    links = {f"l{number}": entry(f"l{number}", tarfile.LNKTYPE, "model.py") for number in range(100)}
    with pytest.raises(TooLarge):
        read_bundle(pack({"model.py": os.urandom(50_000), **links}), largest=MIB)


def test_too_many_entries_are_refused():
    with pytest.raises(TooLarge, match="more than 10 entries"):
        read_bundle(pack({f"f{number}": b"" for number in range(11)}), most_entries=10)


@pytest.mark.parametrize(
    "data",
    [b"", b"no archive at all", gzip.compress(b""), gzip.compress(b"no tar" * 1000), pack({})],
    ids=["nothing", "no archive", "gzip of nothing", "gzip of no tar", "no entry"],  # gzip writes the time down
)
def test_what_is_no_bundle_is_refused(data):
    with pytest.raises(InvalidSpec):
        read_bundle(data)


def test_a_bundle_without_a_model_is_refused():
    with pytest.raises(InvalidSpec, match=r"neither model\.toml nor model\.py"):
        read_bundle(pack({"README.md": b"x"}))
    with pytest.raises(InvalidSpec, match="neither"):
        read_bundle(pack({"a/model.py": MODEL, "b/model.py": MODEL}))


def test_a_truncated_bundle_is_refused():
    whole = pack({"model.py": os.urandom(20_000)})
    for end in range(0, len(whole) - 1, 997):
        with pytest.raises(InvalidSpec):
            read_bundle(whole[:end])


GOOD = pack({"model.toml": toml(), "model.py": MODEL, "data/x": bytes(range(256)) * 10})
TAR = gzip.decompress(GOOD)


@given(st.lists(st.tuples(st.integers(0, len(TAR) - 1), st.integers(0, 255)), min_size=1, max_size=8))
def test_whatever_the_bytes_nothing_but_a_refusal_or_safe_names_come_out(changes):
    damaged = bytearray(TAR)
    for place, value in changes:
        damaged[place] = value
    try:
        files = read_bundle(gzip.compress(bytes(damaged), 1)).files
    except FornadaError:
        return
    for path in files:
        assert not path.startswith("/") and ".." not in path.split("/") and "\0" not in path


@given(st.text(max_size=40), st.binary(max_size=20))
def test_every_name_comes_out_safe_or_is_refused(name, content):
    try:
        files = read_bundle(pack({"model.py": MODEL, name: content})).files
    except (FornadaError, UnicodeEncodeError, ValueError):
        return
    for path in files:
        parts = path.split("/")
        assert ".." not in parts and "." not in parts and "" not in parts
        assert path.isprintable() or all(ord(character) > 31 for character in path)
