"""Builds the control plane's concrete parts and joins them. The only place that knows who stands behind a port."""

import asyncio
import os
import signal
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fornada
from fornada.app import ready, reserve
from fornada.app.config import is_loopback
from fornada.app.data_directory import NODE_JSON, STORE, USAGE
from fornada.app.node_file import NodeFile
from fornada.app.replacement import Replacement, listeners
from fornada.app.rpc import Rpc
from fornada.app.webhook_secret import webhook_secret
from fornada.control.catalog import Catalog
from fornada.control.files import Files
from fornada.control.finetunes import Finetunes
from fornada.control.gateways import Gateways
from fornada.control.jobs import Jobs
from fornada.control.webhooks import Webhooks
from fornada.core.errors import DiskFull
from fornada.core.names import LOCAL_ACCOUNT, Instant
from fornada.core.policy.outbound import outbound
from fornada.core.ports import KeeperLost
from fornada.core.resources import parse_size
from fornada.core.settings import Settings
from fornada.edge.keyring import Keyring
from fornada.edge.server import Server
from fornada.edge.server.certificates import Certificates
from fornada.keeper.starting import STANDBY
from fornada.keeper.upgrade import QUIET_S, RELEASE_SPARE_S
from fornada.node import keeper_client
from fornada.node.devices import inventory
from fornada.node.devices.cpu import cgroup_memory, memory_info
from fornada.node.keeper_client import KeeperClient
from fornada.node.manager import Manager
from fornada.node.provision import Provisioner
from fornada.node.provision.sdk import ensure_sdk, package_folder
from fornada.node.webhooks import HookClient
from fornada.store.keys import mark_path
from fornada.store.mark import watch
from fornada.store.metering import Metering
from fornada.store.sqlite import SqliteStore, foreign_schema
from fornada.telemetry import Level, Telemetry

MODELS = Path(fornada.__file__).parent / "models"
EXAMPLE_PICTURE = MODELS / "efficientnet-lite0" / "example" / "request.jpg"
STANDBY_S = QUIET_S + 2 * RELEASE_SPARE_S
"""Beside another control plane: a little longer than the keeper gives that one to let go."""
CLOSE_S = 1.0
"""After the drain: for the last bytes of answers to leave."""


def _share(text: str) -> int:
    """Bytes of a size, or of a share of the memory that the node may use."""
    if not text.endswith("%"):
        return parse_size(text)
    root = Path("/")
    allowed = min([memory_info(root)["MemTotal"], *(limit for limit, _ in cgroup_memory(root))])
    return int(allowed * float(text[:-1]) / 100)


async def _prepare(data_dir: Path) -> str:
    """Does beside another control plane what would take its time between that one and this one. Why this one can't follow, or nothing."""
    try:
        await asyncio.to_thread(ensure_sdk, data_dir / "sdk", package_folder())
    except DiskFull as error:
        return error.message
    return foreign_schema(data_dir / STORE)


class SystemClock:
    """core.ports.Clock over the machine's clocks."""

    def now(self) -> Instant:
        return Instant(time.monotonic())

    def wall(self) -> float:
        return time.time()


class Node:
    """The control plane of one node, assembled."""

    def __init__(self, settings: Settings, keeper: KeeperClient, environ: Mapping[str, str]) -> None:
        """Opens the store. Raises StoreUnusable, DiskFull."""
        data_dir = Path(settings.data_dir)
        self._settings = settings
        self._data_dir = data_dir
        self._keeper = keeper
        self._clock = SystemClock()
        self._loop = asyncio.get_running_loop()
        self._drain: asyncio.Future[float] = self._loop.create_future()
        self._replaced: asyncio.Future[None] = self._loop.create_future()
        self._adopting: set[asyncio.Task[None]] = set()
        keeper.on_drain = self._drain_wanted
        keeper.on_lost = self._keeper_lost
        # A service manager may signal every process of the service, not main alone.
        self._loop.add_signal_handler(signal.SIGTERM, self._drain_wanted, "signal to the control plane", settings.node.drain_s)
        self._telemetry = Telemetry(
            clock=self._clock,
            data_dir=data_dir,
            log_bytes=parse_size(settings.node.log_bytes),
            # A person at a terminal is shown what needs attention; logs/node.log holds every event all the same.
            stream_level=Level.WARNING if os.isatty(sys.stderr.fileno()) else Level.INFO,
        )
        self._telemetry.metrics.isolation.read = lambda: [((keeper.isolation,), 1)]
        self._store = SqliteStore(data_dir / STORE)
        reserve.keep(data_dir)
        self._provision = Provisioner(
            data_dir=data_dir,
            keeper=keeper,
            settings=settings.provision,
            proofs=self._store,
            allow_private=settings.outbound.allow_private,
            inherited=environ,
            disk_budget=settings.node.disk_budget,
            log=self._telemetry.log,
        )
        self._catalog = Catalog(store=self._store, provision=self._provision, builtin=MODELS, log=self._telemetry.log)
        self._usage = Metering(self._store, data_dir / USAGE, epoch=keeper.epoch, wall=self._clock.wall, log=self._telemetry.log)
        self._manager = Manager(
            clock=self._clock,
            keeper=keeper,
            provision=self._provision,
            store=self._store,
            catalog=self._catalog,
            devices=inventory(settings.devices),
            settings=settings.node,
            telemetry=self._telemetry,
            data_dir=data_dir,
            allow_private=settings.outbound.allow_private,
            inherited=environ,
            zygotes=keeper,
            node=self._facts(),
            usage=self._usage,
        )
        self._catalog.changed = self._manager.catalog_changed
        self._catalog.in_use = self._manager.in_use
        self._jobs = Jobs(
            store=self._store,
            room=self._manager.job_room,
            clock=self._clock,
            log=self._telemetry.log,
            settings=settings.jobs,
            weights=settings.node.account_weights,
            new_id=lambda: str(uuid.uuid4()),
            outbound=outbound(settings.outbound.allow_private),
            metrics=self._telemetry.metrics,
        )
        self._hook_client = HookClient(allow_private=settings.outbound.allow_private, inherited=environ)
        self._webhooks = Webhooks(
            store=self._store,
            jobs=self._jobs,
            port=self._hook_client,
            secret=webhook_secret(data_dir, settings.jobs.webhook_secret),
            clock=self._clock,
            log=self._telemetry.log,
        )
        self._keys = self._keyring()
        self._files = Files(
            store=self._store, clock=self._clock, log=self._telemetry.log, settings=settings.jobs, new_id=lambda: uuid.uuid4().hex
        )
        self._finetunes = Finetunes(
            store=self._store,
            files=self._provision.adapters,
            clock=self._clock,
            log=self._telemetry.log,
            settings=settings.finetunes,
            new_id=lambda: str(uuid.uuid4()),
        )
        self._gateways = Gateways(
            store=self._store, clock=self._clock, log=self._telemetry.log, settings=settings.gateway, new_id=lambda: uuid.uuid4().hex
        )
        self._server = Server(
            inference=self._manager,
            catalog=self._catalog,
            operations=self._manager,
            jobs=self._jobs,
            files=self._files,
            finetunes=self._finetunes,
            responses=self._store,
            usage=self._usage,
            settings=settings.server,
            body_bytes=_share(settings.server.max_buffered),
            keyring=self._keys,
            auth=settings.auth,
            telemetry=self._telemetry,
            clock=self._clock,
            certificates=self._certificates(),
            signatures=self._manager.signatures,
            gateways=self._gateways,
            log_body_bytes=parse_size(settings.gateway.max_log_body),
        )

        hosts = [str(listener.getsockname()[0]) for listener in keeper.listeners]
        self._rpc = Rpc(settings.server, self._server, hosts=hosts, log=self._telemetry.log)

    def _certificates(self) -> Certificates | None:
        server, log = self._settings.server, self._telemetry.log
        if not server.tls_cert:
            return None

        def told(event: str, reason: str) -> None:
            if reason:
                log.error(event, reason=reason)
            else:
                log.info(event, cert=server.tls_cert)

        return Certificates(Path(server.tls_cert), Path(server.tls_key) if server.tls_key else None, told=told)

    def _keyring(self) -> Keyring:
        return Keyring(
            self._store,
            cors=self._settings.auth.cors,
            loopback=all(is_loopback(listener.getsockname()[0]) for listener in self._keeper.listeners),
            mark=watch(mark_path(self._data_dir / STORE)),
            locked=self._locked,
        )

    def _locked(self, locked: bool) -> None:
        """There are keys, or there are none."""
        self._telemetry.log.info("node.keys", locked=locked)
        self._catalog.open_mode = not locked
        self._provision.serve_everybody(not locked)

    @classmethod
    async def assemble(cls, settings: Settings, keeper_fd: int, environ: Mapping[str, str]) -> "Node":
        """Connects to the keeper first: it knows what a predecessor left. Beside another control plane (STANDBY in `environ`) it waits
        until that one has let go. Raises KeeperLost, StoreUnusable, DiskFull."""
        standby = bool(environ.get(STANDBY))
        refused = await _prepare(Path(settings.data_dir)) if standby else ""
        wait_s = STANDBY_S if standby else keeper_client.CONNECT_S
        keeper = await keeper_client.connect(keeper_fd, release=fornada.__version__, refused=refused, wait_s=wait_s)
        return cls(settings, keeper, environ)

    async def run(self) -> None:
        """Serves until the keeper asks for a drain, and drains. Raises KeeperLost: a successor can do what this one no longer can."""
        first = self._keeper.epoch == 1
        if first:
            # Whoever starts a node may ask at once whether it lives and when it will be ready.
            await self._server.start(listeners(self._keeper))
        await self._provision.start()
        self._manager.expect_predecessor(there=self._keeper.predecessor)
        self._keeper.on_left = self._alone
        if not self._keeper.predecessor:
            self._usage.take_over()  # before a runner can give back an answer that was a predecessor's
        summing = asyncio.create_task(self._usage.run(), name="sum up usage")
        await self._manager.start()
        self._jobs.start(self._server.items)
        self._files.start()
        self._finetunes.start()
        self._gateways.start()
        self._webhooks.start()
        if not first:
            # Callers of a successor wait in the backlog for these milliseconds; a refusal would cost them more.
            await self._server.start(listeners(self._keeper))
        await self._rpc.start()
        node_file = NodeFile(self._data_dir / NODE_JSON, self._facts(), log=self._telemetry.log, loop=self._loop)
        node_file.write()
        self._keeper.serving(self._url)
        self._take_connections()
        self._keeper.replacing = Replacement(
            keeper=self._keeper,
            server=self._server,
            manager=self._manager,
            log=self._telemetry.log,
            replaced=lambda: self._replaced.set_result(None),
        )
        greeting = asyncio.create_task(self._greet(), name="greeting") if first else None
        either: list[asyncio.Future[Any]] = [self._drain, self._replaced]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        node_file.close()
        if greeting is not None:
            greeting.cancel()
        if self._replaced.done():
            await self._leave()
        else:
            self._webhooks.close()
            self._jobs.close()
            self._server.drain()
            self._rpc.leave(self._drain.result())
            await self._manager.drain(self._drain.result())
        self._files.close()
        await self._hook_client.close()
        await self._server.stop(CLOSE_S)
        await self._rpc.stop(CLOSE_S)
        await self._finetunes.close()
        await self._provision.close()
        summing.cancel()
        self._gateways.close()
        self._usage.close()
        self._store.close()
        self._telemetry.close()

    def _alone(self) -> None:
        """A predecessor has gone. It may have accepted jobs until it did."""
        self._manager.expect_predecessor(there=False)
        self._usage.take_over()
        self._jobs.take_up()

    async def _leave(self) -> None:
        """Another control plane serves: answers what came here before, and lets nothing of it get lost on its way over."""
        self._webhooks.close()
        self._jobs.close()
        for listener in self._keeper.listeners:
            listener.close()
        self._rpc.leave(self._settings.node.drain_s)
        await self._server.leave(self._keeper.give, within_s=self._settings.node.drain_s)
        # No connection of HTTP may be left to wait for, and calls of gRPC still need their instances.
        await self._rpc.stop(self._settings.node.drain_s)
        until = self._loop.time() + CLOSE_S
        while self._keeper.unsent and self._loop.time() < until:
            await asyncio.sleep(0.01)
        await self._manager.close()

    def _take_connections(self) -> None:
        """Those of a predecessor on which nothing is under way."""
        given, self._keeper.on_connection = self._keeper.connections, self._adopt
        for descriptor in given:
            self._adopt(descriptor)

    def _adopt(self, descriptor: int) -> None:
        task = self._loop.create_task(self._server.adopt(descriptor), name="adopt a connection")
        self._adopting.add(task)
        task.add_done_callback(self._adopting.discard)

    def _drain_wanted(self, reason: str, deadline_s: float) -> None:
        if not self._drain.done() and not self._replaced.done():
            self._telemetry.log.info("node.draining", reason=reason, deadline_s=deadline_s)
            ready.farewell(deadline_s)
            self._drain.set_result(deadline_s)

    def _keeper_lost(self, lost: KeeperLost) -> None:
        self._manager.keeper_lost(str(lost))
        if not self._drain.done():
            self._drain.set_exception(lost)

    async def _greet(self) -> None:
        ready.announce(self._url, self._data_dir, self._keeper.isolation, keyed=self._keys.locked)
        if self._settings.ready_example:
            await ready.prepare_example(self._manager, self._clock, self._url, EXAMPLE_PICTURE, keyed=self._keys.locked)

    @property
    def _url(self) -> str:
        host, port = self._keeper.listeners[0].getsockname()[:2]
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # every address: also this one, for the commands of this machine
        scheme = "https" if self._settings.server.tls_cert else "http"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def _facts(self) -> dict[str, Any]:
        """run/node.json."""
        return {
            "main_pid": self._keeper.main_pid,
            "keeper_pid": self._keeper.keeper_pid,
            "control_pid": self._keeper.control_pid,
            "url": self._url,
            "account": LOCAL_ACCOUNT,
            "isolation": self._keeper.isolation,
            "version": fornada.__version__,
            "max_bundle_bytes": parse_size(self._settings.server.max_bundle),
            **({"tls_cert": self._settings.server.tls_cert} if self._settings.server.tls_cert else {}),
        }
