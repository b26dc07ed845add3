"""What an instance needs before it can be started: its environment is built, then its artifacts are fetched."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from fornada.core.errors import FornadaError
from fornada.core.lifecycle import events as e
from fornada.core.ports import KeeperLost, Step, Version
from fornada.node.site import Site
from fornada.node.undertaking import Undertaking


class Obtained(NamedTuple):
    """What provisioning came to."""

    environment: str
    artifacts: Mapping[str, str]


class Provisioning:
    """Of one instance. `build` and `fetch` are work for its undertaking."""

    def __init__(self, version: Version, undertaking: Undertaking, *, site: Site, note_progress: Callable[[Step], None]) -> None:
        self.trouble: FornadaError | None = None
        """What it failed of last. It stays until somebody sets it to None: the cause is gone, or believed to be."""
        self.obtained = Obtained("", {})
        self._version = version
        self._undertaking = undertaking
        self._site = site
        self._note_progress = note_progress

    async def build(self) -> None:
        """Ends in Built, ProvisionFailed or, cancelled, ProvisionCancelled."""
        self._note_progress(Step("building", ""))
        await self._tell_end_of(self._build(), e.Built())

    async def fetch(self) -> None:
        """Ends in Fetched, ProvisionFailed or, cancelled, ProvisionCancelled."""
        self._note_progress(Step("fetching", ""))
        await self._tell_end_of(self._fetch(), e.Fetched())

    async def _build(self) -> None:
        environment = await self._site.provision.environment(self._version, self._note_progress)
        self.obtained = self.obtained._replace(environment=environment)

    async def _fetch(self) -> None:
        artifacts = await self._site.provision.artifacts(self._version, self._note_progress)
        self.obtained = self.obtained._replace(artifacts=artifacts)

    async def _tell_end_of(self, work: Awaitable[None], done: e.Event) -> None:
        now = self._site.now
        try:
            await work
        except (asyncio.CancelledError, KeeperLost):
            raise  # the undertaking tells of the one; of the other there is nothing to tell
        except FornadaError as error:
            self.trouble = error
            self._undertaking.ends(e.ProvisionFailed(now(), error.message))
        except BaseException as error:
            self._undertaking.ends(e.ProvisionFailed(now(), f"internal fault: {type(error).__name__}: {error}"))
            raise
        else:
            self._undertaking.ends(done)
