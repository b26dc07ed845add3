"""The control plane's side, against a keeper's end that the test holds."""

import asyncio
import os

import pytest

from fornada.core.ports import KeeperLost, KeeperPort, Launch, Limits, ProcessPort, Sandbox, SpawnRefused
from fornada.node import keeper_client
from fornada.node.adoption import still_alive
from fornada.node.keeper_client import KeeperClient
from fornada_sdk.wire.channel import Channel, Message, pair
from fornada_sdk.wire.messages import Kind
from tests.bounds import bound

LAUNCH = Launch(instance="a", argv=["/bin/true"], env={}, cwd="/", limits=Limits(), sandbox=Sandbox(), assignment={}, memo={"model": "m"})
WELCOME = {"epoch": 3, "keeper_pid": 2, "main_pid": 1, "control_pid": 5, "listeners": 0, "instances": 0, "ended": 0, "builds": []}
ENDED = {"status": 0, "signal": None, "max_rss_bytes": 1, "cpu_s": 0.5}


class FakeKeeper:
    """The other end."""

    def __init__(self):
        ours, theirs = pair()
        self.channel = Channel(ours, queue_bytes=1 << 20, body_bytes=1 << 20)
        self.theirs = theirs.detach()

    def send(self, kind, *, descriptors=(), **head):
        self.channel.send(kind, head, descriptors)

    def spawned(self, instance):
        """Sends SPAWNED; the other ends of link and output."""
        (ours, theirs), (read_end, write_end) = pair(), os.pipe()
        self.send(Kind.SPAWNED, instance=instance, pid=77, memo={"model": "m"}, descriptors=[theirs.detach(), read_end])
        return ours, write_end

    async def heard(self) -> Message:
        async with asyncio.timeout(bound(5)):
            while not (messages := list(self.channel.receive())):
                await asyncio.sleep(0.001)
        (message,) = messages
        return message

    async def connect(self, **welcome) -> KeeperClient:
        self.send(Kind.WELCOME, **{**WELCOME, **welcome})
        client = await keeper_client.connect(self.theirs)
        assert (await self.heard()).kind == Kind.PRESENT
        return client


@pytest.fixture
def keeper():
    fake = FakeKeeper()
    yield fake
    fake.channel.close()


async def test_it_is_a_keeper_port(keeper):
    client = await keeper.connect()
    port: KeeperPort = client
    spawning = asyncio.create_task(port.spawn(LAUNCH))
    order = await keeper.heard()
    assert order.kind == Kind.SPAWN and order.head["memo"] == {"model": "m"} and order.head["limits"]["open_files"] == 1024
    ours, write_end = keeper.spawned("a")
    process: ProcessPort = await spawning
    assert (process.pid, process.instance, port.epoch) == (77, "a", 3)
    assert not os.get_blocking(process.link)
    keeper.send(Kind.EXITED, instance="a", **ENDED)
    first, second = await asyncio.gather(process.exited(), process.exited())
    assert first == second and first.code == 0 and first.cpu_s == 0.5
    link = process.link
    process.forget()
    process.forget()
    assert (await keeper.heard()).kind == Kind.FORGET
    with pytest.raises(OSError):
        os.fstat(link)
    ours.close()
    os.close(write_end)
    client.close()


async def test_a_drain_that_was_asked_early_is_not_lost(keeper):
    keeper.send(Kind.WELCOME, **WELCOME)
    keeper.send(Kind.DRAIN, reason="SIGTERM", deadline_s=7)
    client = await keeper_client.connect(keeper.theirs)
    asked = []
    client.on_drain = lambda reason, deadline_s: asked.append((reason, deadline_s))
    assert asked == [("SIGTERM", 7.0)]
    client.close()


async def test_connecting_waits_for_all_that_is_given_back(keeper):
    keeper.send(Kind.WELCOME, **{**WELCOME, "instances": 3, "ended": 1})
    kept = [keeper.spawned(name) for name in ("a", "b")]
    connecting = asyncio.create_task(keeper_client.connect(keeper.theirs))
    await asyncio.sleep(0.05)
    assert not connecting.done()
    keeper.send(Kind.REFUSED, instance="c", reason="no descriptors")
    await asyncio.sleep(0.05)
    assert not connecting.done()
    keeper.send(Kind.EXITED, instance="b", **ENDED)
    client = await connecting
    alive, ended = await still_alive(client.adopted)
    assert [process.instance for process in alive] == ["a"] and [process.instance for process in ended] == ["b"]
    assert [process.instance for process in client.adopted] == ["a", "b"]
    for process in client.adopted:
        process.forget()
    for ours, write_end in kept:
        ours.close()
        os.close(write_end)
    client.close()


async def test_a_refusal_reaches_its_caller_alone(keeper):
    client = await keeper.connect()
    spawning = asyncio.create_task(client.spawn(LAUNCH))
    await keeper.heard()
    with pytest.raises(SpawnRefused, match="already"):
        await client.spawn(LAUNCH)
    keeper.send(Kind.REFUSED, instance="a", reason="no room")
    with pytest.raises(SpawnRefused, match="no room"):
        await spawning
    client.close()


async def test_the_keepers_end_reaches_everybody_who_waits(keeper):
    client = await keeper.connect(instances=0)
    ours, write_end = keeper.spawned("old")
    spawning = asyncio.create_task(client.spawn(LAUNCH))
    building = asyncio.create_task(client.build("b", argv=["true"], env={}, cwd="/", limits=Limits(), sandbox=Sandbox(), log="/x"))
    await asyncio.sleep(0.05)
    waiting = asyncio.create_task(client.adopted[0].exited())
    lost: list[KeeperLost] = []
    client.on_lost = lost.append
    await asyncio.sleep(0)
    keeper.channel.close()
    for task in (spawning, building, waiting):
        with pytest.raises(KeeperLost):
            await task
    assert len(lost) == 1
    with pytest.raises(KeeperLost):
        await client.spawn(LAUNCH)
    client.adopted[0].signal(9)
    client.adopted[0].forget()
    client.serving("http://x")
    ours.close()
    os.close(write_end)


@pytest.mark.parametrize("head", [{}, {**WELCOME, "listeners": 1}, {**WELCOME, "epoch": "x"}])
async def test_a_welcome_that_can_not_be_read_is_a_lost_keeper(keeper, head):
    keeper.send(Kind.WELCOME, **head)
    with pytest.raises(KeeperLost):
        await keeper_client.connect(keeper.theirs)


async def test_what_is_no_json_is_refused_here(keeper):
    client = await keeper.connect()
    for bad in ({"x": object()}, {"x": "\ud800"}):
        with pytest.raises(SpawnRefused, match="JSON"):
            await client.spawn(Launch(**{**{f: getattr(LAUNCH, f) for f in LAUNCH.__struct_fields__}, "assignment": bad}))
    client.close()
