"""Where a connection may go that somebody else asked for: a model, an artifact's source, a webhook.

    host:port ── Place ── named in the list? ── resolved (by the caller) ── which addresses may be connected to? ── Verdict

The caller connects to one of the addresses that the verdict holds, never to the name again: between two look-ups a name may turn
to another address. It says, too, which of them are the machine's own (node.own_addresses): no number tells. Ranges are those of
IANA's special-purpose registries (RFC 6890 and what was registered since), written out here, because what `ipaddress` calls private
differs between releases of Python.
"""

import dataclasses
import enum
import ipaddress
import re
from collections.abc import Collection, Iterable, Sequence

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

HOST_LONGEST = 253
TEXT_LONGEST = 1024
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)\Z")
_NUMERIC = re.compile(r"(\d+|0x[0-9a-f]*)\Z")
# IDNA 2003 and 2008 map these to different names (UTS #46, section 7): which of them is meant, only the writer knows.
_AMBIGUOUS = frozenset("\u00df\u03c2\u200c\u200d\u1e9e")


class Kind(enum.Enum):
    """What an address is; the value is the word for people."""

    PUBLIC = "public"
    """Meant to be reached across the internet."""
    LOOPBACK = "loopback"
    PRIVATE = "private"
    LINK_LOCAL = "link-local"
    OWN = "this machine's own"
    METADATA = "a cloud's metadata service"
    MULTICAST = "multicast"
    RESERVED = "reserved"
    TUNNELLED = "an IPv4 address inside an IPv6 one"


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A host as DNS or `ipaddress` writes it (lower case, no trailing dot, xn--, no brackets) and a port of 1 to 65535.

    Made by `place` and `parse_place` alone, so that two spellings of one place are equal.
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclasses.dataclass(frozen=True, slots=True)
class Permitted:
    """Connect to one of these, in this order. Never empty."""

    addresses: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Refused:
    """The reason is half a line: "is not named in …", "10.0.0.1 is private"."""

    reason: str


Verdict = Permitted | Refused


@dataclasses.dataclass(frozen=True, slots=True)
class Outbound:
    """What the operator permits beyond the public addresses."""

    allowed: frozenset[Place] = frozenset()
    """Names reached whatever address they have, and addresses reached whatever name they were found under; each at that port only."""

    def and_also(self, one: Place) -> "Outbound":
        """With one place more."""
        return Outbound(self.allowed | {one})

    def judge(self, wanted: Place, addresses: Sequence[str], *, own: Collection[str]) -> Verdict:
        """Which of the addresses that `wanted` resolved to may be connected to; `own` are those that are this machine's. What can't be
        read as an address is left out."""
        permitted = []
        reason = "has no address"
        for text in addresses:
            address = _read(text)
            if address is None:
                continue
            kind = kind_of(address)
            if kind is Kind.PUBLIC and text in own:
                kind = Kind.OWN
            if kind is Kind.PUBLIC or wanted in self.allowed or Place(str(address), wanted.port) in self.allowed:
                permitted.append(text)
            else:
                reason = f"{text} is {kind.value}"
        return Permitted(tuple(permitted)) if permitted else Refused(reason)


def place(host: str, port: int) -> Place:
    """`host` may be a name in any script, with or without a trailing dot, or an address with or without brackets. Raises ValueError."""
    if not 1 <= port <= 65535:
        raise ValueError(f"port {port} must lie between 1 and 65535")
    return Place(_host(host), port)


def parse_place(text: str) -> Place:
    """ "host:port" or "[address]:port". Raises ValueError."""
    if len(text) > TEXT_LONGEST:
        raise ValueError(f"a host:port of {len(text)} characters")
    host, colon, port = text.rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port):
        raise ValueError(f"'{text}' is no host:port")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError(f"'{text}': an IPv6 address stands in brackets, [address]:port")
    return place(host, int(port))


def outbound(allow_private: Iterable[str]) -> Outbound:
    """[outbound] allow_private, read. Raises ValueError, naming the entry."""
    return Outbound(frozenset(map(parse_place, allow_private)))


def kind_of(address: Address) -> Kind:
    """An IPv4 address that is written or translated as an IPv6 one (IPv4-mapped, NAT64) is what that IPv4 address is."""
    if isinstance(address, ipaddress.IPv6Address) and any(address in network for network in _HOLDS_IPV4):
        address = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _METADATA:
        return Kind.METADATA
    for network, kind in _SPECIAL[address.version]:
        if address in network:
            return kind
    return Kind.PUBLIC if address.version == 4 or address in _GLOBAL_UNICAST else Kind.RESERVED


def _read(text: str) -> Address | None:
    try:
        return None if "%" in text else ipaddress.ip_address(text)  # a zone says through which card: only link-local has one
    except ValueError:
        return None


def _host(text: str) -> str:
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if ":" in bare or bare != text:
        address = _read(bare)
        if not isinstance(address, ipaddress.IPv6Address):
            raise ValueError(f"'{text}' is no IPv6 address")
        return str(address)
    if len(text) > TEXT_LONGEST:
        raise ValueError(f"a host of {len(text)} characters")
    host = _ascii(text).lower().removesuffix(".")
    if len(host) > HOST_LONGEST or not all(map(_LABEL.match, host.split("."))):
        raise ValueError(f"'{text}' is no host")
    if _NUMERIC.match(host.rpartition(".")[2]):
        # 127.1, 0x7f000001 and 2130706433 are addresses to the C library, and are no name to DNS.
        address = _read(host)
        if address is None:
            raise ValueError(f"'{text}' is no host: an IPv4 address has four decimal numbers")
        return str(address)
    return host


def _ascii(text: str) -> str:
    if text.isascii():
        return text
    if not _AMBIGUOUS.isdisjoint(text):
        raise ValueError(f"'{text}' has letters that are written in two ways; write the host as DNS has it, xn--…")
    try:
        return text.encode("idna").decode("ascii")
    except UnicodeError:
        raise ValueError(f"'{text}' is no host") from None


def _networks(table: dict[str, Kind]) -> list[tuple[Network, Kind]]:
    return [(ipaddress.ip_network(text), kind) for text, kind in table.items()]


_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
"""All of IPv6 that is handed out to be reached; the rest is reserved."""
_HOLDS_IPV4 = (ipaddress.ip_network("::ffff:0:0/96"), ipaddress.ip_network("64:ff9b::/96"))
_METADATA = frozenset(
    map(ipaddress.ip_address, ["169.254.169.254", "169.254.170.2", "168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254"])
)
"""Where clouds answer whoever asks with the machine's own credentials. One of them (168.63.129.16) is public by its number."""
_SPECIAL = {
    4: _networks(
        {
            "0.0.0.0/8": Kind.RESERVED,  # this host: Linux connects 0.0.0.0 to loopback
            "10.0.0.0/8": Kind.PRIVATE,
            "100.64.0.0/10": Kind.PRIVATE,  # carriers' own
            "127.0.0.0/8": Kind.LOOPBACK,
            "169.254.0.0/16": Kind.LINK_LOCAL,
            "172.16.0.0/12": Kind.PRIVATE,
            "192.0.0.0/24": Kind.RESERVED,
            "192.0.2.0/24": Kind.RESERVED,
            "192.88.99.0/24": Kind.RESERVED,  # 6to4 relays of old
            "192.168.0.0/16": Kind.PRIVATE,
            "198.18.0.0/15": Kind.RESERVED,
            "198.51.100.0/24": Kind.RESERVED,
            "203.0.113.0/24": Kind.RESERVED,
            "224.0.0.0/4": Kind.MULTICAST,
            "240.0.0.0/4": Kind.RESERVED,  # broadcast among them
        }
    ),
    6: _networks(
        {
            "::1/128": Kind.LOOPBACK,
            "::/96": Kind.TUNNELLED,  # IPv4-compatible, :: among them: Linux connects it to loopback
            "::ffff:0:0:0/96": Kind.TUNNELLED,
            "64:ff9b:1::/48": Kind.TUNNELLED,  # NAT64 of a network's own, at a place that only it knows
            "2001::/32": Kind.TUNNELLED,  # Teredo
            "2001::/23": Kind.RESERVED,
            "2001:db8::/32": Kind.RESERVED,
            "2002::/16": Kind.TUNNELLED,  # 6to4
            "3fff::/20": Kind.RESERVED,
            "fc00::/7": Kind.PRIVATE,
            "fe80::/10": Kind.LINK_LOCAL,
            "fec0::/10": Kind.PRIVATE,  # site-local of old
            "ff00::/8": Kind.MULTICAST,
        }
    ),
}
