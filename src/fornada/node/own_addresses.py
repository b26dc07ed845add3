"""Which addresses are this machine's own: who connects to one of them reaches the machine's own services, whatever its number says."""

import ipaddress
import socket
from collections.abc import Iterable

_ANY_PORT = 9


def own_among(addresses: Iterable[str]) -> frozenset[str]:
    """Those of the addresses that are. Asked anew each time: a machine's addresses come and go. Some microseconds for each.

    What isn't seen: an address that somebody else translates to one of ours, and one of a range that was routed here without being given
    to the machine (`ip route add local`). Raises OSError where this process may open no more sockets.
    """
    return frozenset(address for address in addresses if _is_own(address))


def _is_own(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    with socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as asking:
        try:
            # Nothing is sent: the kernel looks for the way. To an address of its own the way begins at that very address.
            asking.connect((text, _ANY_PORT))
        except OSError:
            return False  # there is no way to it
        return ipaddress.ip_address(asking.getsockname()[0]) == address
