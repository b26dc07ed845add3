"""Keeps the book true: reads what instances and devices hold every few seconds, hears of devices' faults and says whom they concern."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fornada.core.errors import FornadaError
from fornada.core.lifecycle.states import WITH_RESERVATION
from fornada.core.names import Instant
from fornada.core.policy.memory import CPU, Phase
from fornada.node.devices.faults import describe, is_the_programs
from fornada.node.instance import Instance
from fornada.node.site import Site

LOOK_S = 2.0
"""Between two readings: what is wrong in the book is right again after twice that."""


class Upkeep:
    """Of one node."""

    def __init__(self, site: Site, instances: Callable[[], Iterable[Instance]]) -> None:
        self._site = site
        self._instances = instances
        self._known: dict[str, str] = {}
        """Fences as the store has them."""
        self._said: dict[str, str] = {}
        """Fences as the log was told of them."""

    def begin(self) -> None:
        """Before anybody is placed: a fence that a predecessor had put up still stands."""
        self._known = self._site.store.fences()
        self._said = dict(self._known)
        for device, reason in self._known.items():
            self._site.devices.fence(device, reason)

    async def run(self) -> None:
        while True:
            with self._site.faults.contained("upkeep"):
                await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        site = self._site
        await site.devices.look(now=site.now())
        self.hear()
        self._true_up()
        await site.ledger.weigh(site.room.residents())
        await site.zygotes.weigh()
        site.ledger.sum_up(site.room.residents(), helpers_bytes=site.zygotes.held_bytes())
        site.ledger.write_again()
        in_the_way = site.room.wanted_of_host > site.devices.free_of_models_bytes
        site.zygotes.give_way(in_the_way, spare_bytes=lambda: site.room.spare_bytes(CPU))
        if site.room.anybody_waits:
            site.room.replan()

    def _true_up(self) -> None:
        """The book is made again from what there is."""
        site, instances = self._site, list(self._instances())
        there = {instance.key: (instance, instance.device) for instance in instances if instance.state in WITH_RESERVATION}
        wrong = site.room.true_up(there)
        wrong += site.devices.true_up({instance.runner.id for instance in instances if instance.runner is not None}, now=site.now())
        if wrong:
            site.telemetry.log.error("ledger.corrected", entries=wrong)

    def changed(self, device: str, change: Mapping[str, Any]) -> None:
        """An operator changes a device. Raises BadRequest."""
        self._site.devices.patch(device, change, now=self._site.now())
        self._site.telemetry.log.info("device.changed", device=device, change=dict(change))
        self.hear()
        self._site.room.replan()

    def hear(self) -> None:
        """Carries out what devices tell of faults."""
        for device, xids in self._site.devices.faults().items():
            on = [instance for instance in self._site.room.on(device) if isinstance(instance, Instance)]
            for xid in xids:
                self._site.telemetry.log.error("device.fault", device=device, xid=xid, what=describe(xid))
                for instance in concerned(on, xid):
                    instance.struck(f"{device} told {describe(xid)}")
        self._remember_fences()

    def _remember_fences(self) -> None:
        """What the store can't take now is tried again with the next look: a successor is to place nothing on a broken card."""
        fences = self._site.devices.fences()
        for device in sorted({*fences, *self._known, *self._said}):
            reason = fences.get(device, "")
            news = reason != self._said.get(device, "")
            if news and reason:
                self._site.telemetry.log.error("device.fenced", device=device, reason=reason)
            elif news:
                self._site.telemetry.log.info("device.unfenced", device=device)
            if reason == self._known.get(device, ""):
                continue
            try:
                self._site.store.set_fence(device, reason)
            except FornadaError as error:
                if news:
                    self._site.telemetry.log.warning("device.fence_lost", device=device, reason=error.message)
            else:
                self._known[device] = reason
        self._said = fences


def concerned(on: Sequence[Instance], xid: int) -> list[Instance]:
    """Who on the device has to go: everybody where the card is to blame. A program's fault is one program's; the driver doesn't say
    whose, so it is laid at the door of who works on the device, or has done so last."""
    if not is_the_programs(xid) or not on:
        return list(on)
    return [max(on, key=_suspicion)]


def _suspicion(instance: Instance) -> tuple[bool, Instant]:
    return instance.phase is Phase.BUSY, instance.last_used
