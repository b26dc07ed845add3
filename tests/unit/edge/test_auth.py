"""Who counts as this machine, and who doesn't."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fornada.core.errors import BadRequest, Forbidden, ForeignOrigin
from fornada.core.names import AccountId
from fornada.edge.auth import Caller, Credentials, OpenMode, account_of, is_loopback

LOCAL = [
    "localhost",
    "LOCALHOST",
    "localhost.",
    "a.localhost",
    "127.0.0.1",
    "127.255.0.9",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]",
]
FOREIGN = [
    "",
    "evil.example",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "127.0.0.256",
    "127.0.0",
    "2130706433",
    "0x7f.0.0.1",
    "0.0.0.0",
    "10.0.0.1",
    "169.254.169.254",
    "[::2]",
    "[::]",
    "[fe80::1]",
    "::1",
    "evil@localhost",
    "localhost@evil.example",
    "localhost evil",
    "localhost/evil",
    "localhost\\evil",
    "[::1",
    "notlocalhost",
]


@pytest.mark.parametrize("host", LOCAL)
@pytest.mark.parametrize("port", ["", ":8250", ":1", ":65535"])
def test_this_machine_is_known_by_every_name_that_no_dns_can_move(host: str, port: str):
    assert is_loopback(host + port)
    OpenMode().admit(Credentials(host + port, None, None))


@pytest.mark.parametrize("host", FOREIGN)
@pytest.mark.parametrize("port", ["", ":8250"])
def test_nothing_else_is_this_machine(host: str, port: str):
    assert not is_loopback(host + port)
    with pytest.raises(ForeignOrigin):
        OpenMode().admit(Credentials(host + port, None, None))


@given(st.text(max_size=40))
def test_any_text_is_judged_without_an_error(text: str):
    if is_loopback(text):
        assert "localhost" in text.lower() or "127." in text or "::1" in text or "0:0" in text


def test_origins_are_local_pages_and_those_that_the_operator_named():
    mode = OpenMode(["https://app.example/"])
    for origin in ("http://localhost:3000", "https://127.0.0.1", "http://[::1]:1", "https://app.example", "HTTPS://APP.EXAMPLE"):
        assert mode.allows_origin(origin), origin
    for origin in (
        "null",
        "file://",
        "https://app.example.evil",
        "http://app.example",
        "https://app.example:1",
        "ftp://localhost",
        "localhost",
        "",
    ):
        assert not mode.allows_origin(origin), origin
    assert OpenMode(["*"]).allows_origin("https://anything.example")


def test_everybody_may_act_for_any_account_in_open_mode_and_keys_can_narrow_it():
    anybody = OpenMode().admit(Credentials("localhost", None, "any token"))
    assert anybody.acting_for(AccountId("x")) == "x" and anybody.acting_for(None) == "local"
    somebody = Caller(AccountId("mine"))
    assert somebody.acting_for(None) == "mine" == somebody.acting_for(AccountId("mine"))
    with pytest.raises(Forbidden):
        somebody.acting_for(AccountId("yours"))


@pytest.mark.parametrize("text", ["", "a" * 129, "a\nb", "\0"])
def test_an_account_is_something_that_can_be_printed(text: str):
    with pytest.raises(BadRequest):
        account_of(text)
