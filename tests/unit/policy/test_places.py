"""core.policy.outbound: spellings of one place are one place, and a verdict holds nothing that may not be reached."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fornada.core.policy.outbound import Kind, Outbound, Permitted, Place, Refused, kind_of, outbound, parse_place, place

PORTS = st.integers(1, 65535)
LABELS = st.from_regex(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
NAMES = st.lists(LABELS, min_size=1, max_size=4).map(".".join)
NOTHING = Outbound()


@given(NAMES, PORTS)
def test_spellings_of_one_place_are_one_place(name: str, port: int) -> None:
    plain = parse_place(f"{name}:{port}")
    assert plain == parse_place(f"{name.upper()}:{port}") == parse_place(f"{name}.:{port}")
    assert parse_place(str(plain)) == plain


@given(st.ip_addresses(), PORTS)
def test_an_address_reads_back_as_itself(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> None:
    wanted = place(str(address), port)
    assert ipaddress.ip_address(wanted.host) == address
    assert parse_place(str(wanted)) == wanted


@given(st.text(max_size=40))
def test_any_text_is_a_place_or_a_value_error(text: str) -> None:
    try:
        wanted = parse_place(text)
    except ValueError:
        return
    assert wanted.host.isascii() and 1 <= wanted.port <= 65535
    assert parse_place(str(wanted)) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "example.com", "example.com:0", "example.com:65536", "example.com:-1", "example.com:+1", "example.com: 80", ":80", ".:80",
        "a..b:80", "-a.com:80", "a-.com:80", "*:443", "*.example.com:443", "a b:80", "a/b:80", "a@b:80", "a\0b:80", "a\n:80",
        "127.1:80", "2130706433:80", "0x7f000001:80", "0x7f.0.0.1:80", "0177.0.0.1:80", "1.2.3.4.5:80", "1.2.3.256:80",
        "::1:80", "[::1]", "[127.0.0.1]:80", "[fe80::1%eth0]:80", "[]:80", f"{'a' * 64}.com:80", f"{'a.' * 127}com:80",
        "straße.de:80", "x" * 2000 + ":80", "example.com:٤٤٣",
    ],
)  # fmt: skip
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_place(text)


def test_names_in_other_scripts_are_those_of_dns() -> None:
    assert parse_place("München.DE:443") == parse_place("xn--mnchen-3ya.de:443") == Place("xn--mnchen-3ya.de", 443)
    assert parse_place("ex。ample.com:1") == Place("ex.ample.com", 1)
    assert parse_place("[2001:DB8:0:0::1]:1") == Place("2001:db8::1", 1)


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        *((text, Kind.PUBLIC) for text in ("8.8.8.8", "223.255.255.254", "2001:4860:4860::8888", "::ffff:8.8.8.8", "64:ff9b::808:808")),
        *((text, Kind.LOOPBACK) for text in ("127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1")),
        *((text, Kind.PRIVATE) for text in ("10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "fd00::1", "fec0::1")),
        *((text, Kind.LINK_LOCAL) for text in ("169.254.1.1", "fe80::1", "febf::1")),
        *((text, Kind.METADATA) for text in ("169.254.169.254", "168.63.129.16", "100.100.100.200", "fd00:ec2::254", "::ffff:a9fe:a9fe")),
        *((text, Kind.MULTICAST) for text in ("224.0.0.1", "239.255.255.255", "ff02::1")),
        *((text, Kind.RESERVED) for text in ("0.0.0.0", "0.1.2.3", "240.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1")),
        *((text, Kind.RESERVED) for text in ("2001:db8::1", "3fff::1", "4000::1", "100::1", "5f00::1", "2001:10::1")),
        *((text, Kind.TUNNELLED) for text in ("::", "::7f00:1", "::ffff:0:808:808", "64:ff9b:1::a00:1", "2002:7f00:1::", "2001:0:1::1")),
    ],
)
def test_addresses_are_of_their_kind(address: str, kind: Kind) -> None:
    assert kind_of(ipaddress.ip_address(address)) is kind
    assert isinstance(NOTHING.judge(place("example.com", 443), [address], own=()), Permitted) is (kind is Kind.PUBLIC)


@given(st.ip_addresses())
def test_what_python_calls_private_is_never_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    if kind_of(address) is Kind.PUBLIC:
        assert not address.is_loopback and not address.is_link_local and not address.is_multicast and not address.is_unspecified
        assert not address.is_private


@given(st.lists(st.ip_addresses().map(str), max_size=6), st.booleans())
def test_a_verdict_holds_only_what_was_asked_about(addresses: list[str], allowed: bool) -> None:
    wanted = place("db.internal", 5432)
    verdict = (NOTHING.and_also(wanted) if allowed else NOTHING).judge(wanted, addresses, own=())
    if isinstance(verdict, Permitted):
        assert verdict.addresses
        for address in verdict.addresses:
            assert address in addresses
            assert allowed or kind_of(ipaddress.ip_address(address)) is Kind.PUBLIC
    else:
        assert verdict.reason


def test_the_public_ones_of_a_mixed_answer_are_used_and_no_other() -> None:
    assert NOTHING.judge(place("example.com", 443), ["10.0.0.1", "8.8.8.8", "::1"], own=()) == Permitted(("8.8.8.8",))


def test_a_private_place_is_reached_as_the_operator_wrote_it_only() -> None:
    allowed = outbound(["db.internal:5432", "10.0.0.7:80"])
    assert allowed.judge(place("DB.Internal.", 5432), ["10.0.0.1"], own=()) == Permitted(("10.0.0.1",))
    assert allowed.judge(place("db.internal", 5433), ["10.0.0.1"], own=()) == Refused("10.0.0.1 is private")
    assert allowed.judge(place("other", 5432), ["10.0.0.1"], own=()) == Refused("10.0.0.1 is private")
    assert allowed.judge(place("other", 80), ["10.0.0.1", "10.0.0.7"], own=()) == Permitted(("10.0.0.7",))
    assert allowed.judge(place("other", 81), ["10.0.0.7"], own=()) == Refused("10.0.0.7 is private")


def test_the_machine_s_own_address_is_as_near_as_loopback_whatever_its_number() -> None:
    wanted = place("example.com", 443)
    assert NOTHING.judge(wanted, ["8.8.8.8"], own=["8.8.8.8"]) == Refused("8.8.8.8 is this machine's own")
    assert NOTHING.judge(wanted, ["8.8.8.8", "8.8.4.4"], own={"8.8.8.8"}) == Permitted(("8.8.4.4",))
    for named in ("example.com", "8.8.8.8"):
        assert NOTHING.and_also(place(named, 443)).judge(wanted, ["8.8.8.8"], own={"8.8.8.8"}) == Permitted(("8.8.8.8",))


@pytest.mark.parametrize("text", ["", "example.com", "fe80::1%lo", "300.1.1.1", "8.8.8.8 "])
def test_what_is_no_address_is_never_connected_to(text: str) -> None:
    wanted = place("example.com", 443)
    assert NOTHING.judge(wanted, [text], own=()) == NOTHING.and_also(wanted).judge(wanted, [text], own=()) == Refused("has no address")
