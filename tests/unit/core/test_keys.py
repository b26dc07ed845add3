"""What a key is, and what it proves."""

import hashlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fornada.cli.commands.keys import ROLES as COMMAND_ROLES
from fornada.core.keys import ROLES, Key, Role, new_key, proves, read_key
from fornada.core.names import AccountId


def chance(count: int) -> bytes:
    return bytes(range(count))


def made(**more: object) -> tuple[Key, str]:
    return new_key(AccountId("acc"), Role.USER, now=5.0, chance=chance, **more)  # type: ignore[arg-type]


def test_the_text_of_a_key_holds_its_id_and_256_bits_of_which_only_a_digest_is_kept():
    key, text = made()
    shown = read_key(text)
    assert shown is not None and shown.id == key.id == "0001020304050607"
    assert shown.secret == bytes(range(32)).hex()
    assert key.digest == hashlib.sha256(shown.secret.encode()).digest()
    assert shown.secret not in repr(key) and proves(shown.secret, key)


@given(st.text(max_size=100))
def test_any_other_text_is_no_key(text: str):
    assert read_key(text) is None


@given(st.integers(0, 63), st.sampled_from("0123456789abcdef"))
def test_one_digit_more_or_less_right_is_wrong(place: int, digit: str):
    key, text = made()
    secret = text.rsplit("_", 1)[1]
    other = secret[:place] + digit + secret[place + 1 :]
    assert proves(other, key) == (other == secret)


def test_a_revoked_key_and_one_that_never_was_prove_nothing():
    key, text = made()
    secret = text.rsplit("_", 1)[1]
    assert not proves(secret, msgspec.structs.replace(key, revoked=9.0))
    assert not proves(secret, None)


@pytest.mark.parametrize("account", ["", " ", "a ", "a\nb", "x" * 129])
def test_an_account_can_be_printed(account: str):
    with pytest.raises(ValueError, match="account"):
        new_key(AccountId(account), Role.USER, now=0.0, chance=chance)


def test_nobody_has_no_key():
    with pytest.raises(ValueError, match="user, deployer, admin"):
        new_key(AccountId("a"), Role.NOBODY, now=0.0, chance=chance)


def test_the_command_knows_all_roles():
    assert list(COMMAND_ROLES) == list(ROLES)
