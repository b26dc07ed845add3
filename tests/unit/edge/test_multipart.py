"""Forms: what is a field of them, and that a large file isn't copied."""

import subprocess
import sys

import pytest

from fornada.core.errors import BadRequest
from fornada.edge.multipart import read_multipart, read_parts, read_views
from tests.bounds import bound
from tests.harness.adapters import form


def test_all_readers_find_the_same():
    for data in (b"", b"x", b"\r\n--" * 1000, bytes(range(256)) * 100, b"\r\n------formdata-boundary-7f3", b"\r"):
        body, kind = form("name", data)
        views = read_views(body, kind)
        parts = {name: field.data for name, field in read_parts(body, kind)}
        fields = {name: field.data for name, field in read_multipart(body, kind).items()}
        assert {name: bytes(view) for name, view in views.items()} == parts == fields == {"file": data, "file_name": b"name"}


def test_a_file_is_a_view_of_the_body():
    body, kind = form("name", b"x" * 100_000)
    assert read_views(body, kind)["file"].obj is body


def test_a_file_says_its_name_and_type():
    body, kind = form("name", b"x")
    named = dict(read_parts(body, kind))
    assert (named["file"].filename, named["file"].type, named["file"].is_file) == ("blob", "application/octet-stream", True)
    assert not named["file_name"].is_file


def test_what_is_no_form_is_refused():
    body, kind = form("name", b"x")
    for wrong, type in ((body[:-5], kind), (body, "multipart/form-data"), (body.replace(b'"file_name"', b'"file"'), kind), (b"", kind)):
        with pytest.raises(BadRequest):
            read_views(wrong, type)


BROKEN = """
from fornada.core.errors import BadRequest
from fornada.edge.multipart import read_parts
for body in (b"x--b", b"--bx", b"--b\\r\\nna\\xffme: x\\r\\n", b"--b\\r\\n: x\\r\\n", b"--b\\r\\na: b\\rc", b"--b\\r\\n" + b"a" * 100_000):
    try:
        read_parts(body, "multipart/form-data; boundary=b")
    except BadRequest:
        print("refused")
"""


def test_a_broken_form_writes_nothing_of_it_into_the_log():
    """In a process of its own: tests have loggers that hear everything."""
    done = subprocess.run([sys.executable, "-c", BROKEN], capture_output=True, text=True, timeout=bound(30), check=True)
    assert (done.stdout.split(), done.stderr) == (["refused"] * 6, "")
