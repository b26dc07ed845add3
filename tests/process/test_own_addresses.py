"""Which addresses are the machine's own, asked of the real kernel: in a network namespace that has public ones."""

import shutil
import subprocess
import sys

import pytest

from fornada.node.own_addresses import own_among
from tests.bounds import bound

OWN = ["8.8.4.4", "2606:4700::1111"]
FOREIGN = ["8.8.8.8", "2606:4700::1001", "8.8.4.5"]
IN_A_NETWORK = f"""
set -e
ip link set lo up
ip address add {OWN[0]}/32 dev lo
ip address add {OWN[1]}/128 dev lo
ip tuntap add away mode tun
ip address add 192.0.2.1/24 dev away
ip -6 address add 2001:db8::1/64 dev away nodad
ip link set away up
ip route add default via 192.0.2.2
ip -6 route add default via 2001:db8::2
exec "$0" -c 'import sys; from fornada.node.own_addresses import own_among; print(*sorted(own_among(sys.argv[1:])))' "$@"
"""


def in_a_network(*arguments: str) -> list[str]:
    if not shutil.which("unshare") or not shutil.which("ip"):
        pytest.skip("unshare or ip isn't here")
    command = ["unshare", "--map-root-user", "--net", "sh", "-c", IN_A_NETWORK, sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=bound(60))
    if done.returncode:
        pytest.skip(f"no network of one's own here: {done.stderr.strip()[:200]}")
    return done.stdout.split()


def test_public_addresses_of_this_machine_are_told_from_those_of_others():
    assert in_a_network(*OWN, *FOREIGN) == sorted(OWN)


def test_loopback_is_here():
    assert own_among(["127.0.0.1", "::ffff:127.0.0.1"]) == {"127.0.0.1", "::ffff:127.0.0.1"}


def test_what_is_no_address_or_not_in_reach_is_none_of_ours():
    assert own_among(["", "example.com", "8.8.8.8", "255.255.255.255"]) == frozenset()
