"""Files that a node can't serve TLS with, and what it says of them."""

import os
import re
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat, load_pem_private_key

from fornada.edge.server.certificates import Unusable, check


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    cert = issued.cert_chain_pems[0].bytes()
    key = issued.private_key_pem.bytes()
    loaded = load_pem_private_key(key, None)
    locked = [
        loaded.private_bytes(Encoding.PEM, form, BestAvailableEncryption(b"x"))
        for form in (PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL)
    ]
    files = {
        "cert": cert,
        "key": key,
        "both": key + b"some words\n" + cert,
        "mark": b"\xef\xbb\xbf" + cert,
        "crlf": cert.replace(b"\n", b"\r\n"),
        "other key": authority.issue_cert("localhost").private_key_pem.bytes(),
        "locked key": locked[0],
        "old locked key": locked[1],
        "torn": cert[:200],
        "torn key": key[:100],
        "empty": b"",
        "der": b"\x30\x82\x01\x00" + bytes(300),
    }
    for name, content in files.items():
        (made / name).write_bytes(content)
    os.mkfifo(made / "pipe")
    (made / "folder").mkdir()
    return made


@pytest.mark.parametrize(("cert", "key"), [("cert", "key"), ("both", None), ("both", "key"), ("mark", "key"), ("crlf", "key")])
def test_what_holds_a_certificate_and_its_key_serves(folder: Path, cert: str, key: str | None):
    check(folder / cert, folder / key if key else None)


@pytest.mark.parametrize(
    ("cert", "key", "said"),
    [
        ("cert", None, "cert holds no private key .*tls_key"),
        ("key", "cert", "key holds no certificate"),
        ("cert", "cert", "cert holds no private key"),
        ("cert", "other key", "mismatch"),
        ("cert", "locked key", "locked key has a password"),
        ("cert", "old locked key", "locked key has a password"),
        ("torn", "key", "can't be used: "),
        ("cert", "torn key", "can't be used: "),
        ("empty", "key", "holds no certificate"),
        ("der", "key", "holds no certificate"),
        ("none", "key", "No such file"),
        ("cert", "none", "No such file"),
        ("pipe", "key", "pipe is no file"),
        ("cert", "pipe", "pipe is no file"),
        ("folder", "key", "folder is no file"),
    ],
)
def test_what_does_not_serve_is_named(folder: Path, cert: str, key: str | None, said: str):
    with pytest.raises(Unusable) as refused:
        check(folder / cert, folder / key if key else None)
    line = str(refused.value)
    assert re.search(said, line) and "\n" not in line and "ssl.c" not in line, line
