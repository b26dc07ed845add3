"""Starts the process of an instance: alone, forked from a zygote, or as one more in a process that it shares."""

from collections.abc import Mapping
from typing import NamedTuple

from fornada.core.ports import ProcessPort, Version
from fornada.node.hosts import Alone, Seat, Sharing
from fornada.node.launch import Place, launch
from fornada.node.parking import rest_after_s
from fornada.node.site import Site


class Started(NamedTuple):
    """A process on its way."""

    process: ProcessPort
    alone_because: str
    """Why it is the instance's own; empty: it is shared."""


class Obtained(NamedTuple):
    """What provisioning came to."""

    environment: str
    artifacts: Mapping[str, str]


async def start(site: Site, version: Version, place: Place, obtained: Obtained, use: Sharing) -> Started:
    """Raises SpawnRefused, FornadaError, OSError, KeeperLost. Hosts and zygotes have been told of `place.instance` then."""
    id = place.instance
    provisioned = site.provision.provisioned(version, obtained.environment, obtained.artifacts)
    seat = site.hosts.find(id, version, provisioned, use)
    zygote = site.zygotes.start(id, version, provisioned) if isinstance(seat, Alone) else ""
    (site.scratch / id).mkdir(parents=True, mode=0o700)
    ordered = launch(
        version,
        seat.provisioned if isinstance(seat, Seat) else provisioned,
        place,
        seat=seat,
        zygote=zygote,
        inherited=site.inherited,
        release=site.release,
        rest_after_s=rest_after_s(version.spec.serving, site.settings.park_after_s),
    )
    return Started(await site.keeper.spawn(ordered), seat.because if isinstance(seat, Alone) else "")
