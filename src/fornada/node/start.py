"""Starts the process of an instance: alone, forked from a zygote, or as one more in a process that it shares."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from fornada.core.errors import FornadaError
from fornada.core.lifecycle import events as e
from fornada.core.names import ModelName
from fornada.core.policy.memory import CPU
from fornada.core.ports import KeeperLost, ProcessPort, SpawnRefused, Version
from fornada.node.adoption import end_stranger
from fornada.node.disk_use import removed
from fornada.node.hosts import Alone, Seat, Sharing
from fornada.node.launch import Place, instance_id, launch
from fornada.node.parking import rest_after_s
from fornada.node.past import Past
from fornada.node.provisioning import Obtained
from fornada.node.site import Site
from fornada.node.undertaking import Undertaking


class Owner(Protocol):
    """The instance that is to have a process."""

    model: ModelName
    version: Version
    past: Past

    def take(self, process: ProcessPort, device: str) -> None:
        """It is the instance's from here on."""

    def give_back(self) -> None:
        """After a `take` that failed: the process is nobody's."""

    def spawned(self, place: Place, process: ProcessPort) -> None:
        """For the log."""


class Starting:
    """Of one instance. `spawn` is work for its undertaking."""

    def __init__(self, owner: Owner, undertaking: Undertaking, *, next_try: Callable[[], tuple[int, int]], site: Site) -> None:
        """`next_try` is (load attempt, load count) of the process that is about to be started, which it counts."""
        self.alone_because = ""
        """Why the last process was the instance's own; empty: it was shared, or there was none."""
        self._owner = owner
        self._ends = undertaking.ends
        self._next_try = next_try
        self._site = site

    async def spawn(self, obtained: Obtained, device: str) -> None:
        """Ends in Spawned or SpawnFailed, whatever happens, but for KeeperLost."""
        site, owner = self._site, self._owner
        id = instance_id(owner.model, site.new_suffix())
        try:
            place = Place(id, str(site.scratch / id), device, site.devices.kind(device), *self._next_try())
            use = Sharing(device=device, crashes=owner.past.host_crashes, peak_bytes=owner.past.peak_bytes)
            process, self.alone_because = await start(site, owner.version, place, obtained, use)
        except KeeperLost:
            raise
        except (SpawnRefused, FornadaError, OSError) as error:
            site.zygotes.ended(id)
            self._ends(e.SpawnFailed(site.now(), str(error)))
            await remove_scratch(site, id, site.hosts.left(id, well=False))
            return
        except BaseException as error:
            site.zygotes.ended(id)
            site.hosts.left(id, well=False)
            self._ends(e.SpawnFailed(site.now(), _fault(error)))
            raise
        with site.faults.contained("take", model=owner.model, instance=id) as taking:
            owner.take(process, device)
        if taking.error is not None:
            owner.give_back()
            self._ends(e.SpawnFailed(site.now(), _fault(taking.error)))
            site.zygotes.ended(id)
            site.hosts.left(id, well=False)
            await end_stranger(process, kill_s=site.settings.kill_s)
            return
        owner.spawned(place, process)
        self._ends(e.Spawned())


class Started(NamedTuple):
    """A process on its way."""

    process: ProcessPort
    alone_because: str
    """Why it is the instance's own; empty: it is shared."""


async def start(site: Site, version: Version, place: Place, obtained: Obtained, use: Sharing) -> Started:
    """Raises SpawnRefused, FornadaError, OSError, KeeperLost. Hosts and zygotes have been told of `place.instance` then."""
    id = place.instance
    provisioned = site.provision.provisioned(version, obtained.environment, obtained.artifacts)
    seat = site.hosts.find(id, version, provisioned, use)
    zygote = site.zygotes.start(id, version, provisioned) if isinstance(seat, Alone) else ""
    if isinstance(seat, Alone):
        (site.scratch / id).mkdir(parents=True, mode=0o700)
    ordered = launch(
        version,
        seat.provisioned if isinstance(seat, Seat) else provisioned,
        place,
        seat=seat,
        zygote=zygote,
        kin=site.zygotes.of(id),
        inherited=site.inherited,
        release=site.release,
        # What bounds a process counts more of it than what measures it does: page tables, files that it has read.
        most_bytes=site.devices.host_bytes + site.devices.slack_bytes(CPU),
        rest_after_s=rest_after_s(version.spec.serving, site.settings.park_after_s),
        scratch_in_memory=site.settings.scratch_in_memory,
        cuda_visible=site.devices.visible(place.device),
    )
    return Started(await site.keeper.spawn(ordered), seat.because if isinstance(seat, Alone) else "")


async def remove_scratch(site: Site, *names: str) -> None:
    """What processes that have ended, or never began, leave below the scratch directory. Empty names are none."""
    for name in filter(None, names):
        await removed(site.scratch / name)


def _fault(error: BaseException) -> str:
    return f"internal fault: {type(error).__name__}: {error}"
