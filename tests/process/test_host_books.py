"""Who shares which process, whatever happens in whatever order: no process, only the keeper's books and real channels."""

import heapq
import itertools
import os
import select
import signal
import socket
from typing import Any

from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fornada.keeper.children import Exit, Started
from fornada.keeper.hosts import Hosts
from fornada.keeper.orders import Command, Spawn
from fornada.keeper.peer import Peer
from fornada.keeper.records import HostChild, Life, Member
from fornada_sdk.sandbox.plan import Limits
from fornada_sdk.wire.channel import Channel, pair
from fornada_sdk.wire.messages import Kind
from tests.bounds import count

KILL_S = 5.0
COMMAND = Command(("x",), {}, "/", Limits())
NAMES = strategies.sampled_from(["h", "g"])


class Timer:
    def cancel(self):
        raise NotImplementedError


class Turns:
    """keeper.loop.Loop with a clock of the test's own; `turn` looks once at everything that is watched."""

    def __init__(self):
        self.clock = 0.0
        self.ready = {}
        self.timers = []
        self.order = itertools.count()

    def now(self):
        return self.clock

    def watch(self, descriptor, ready, events=select.EPOLLIN):
        self.ready[descriptor] = ready

    def change(self, descriptor, events):
        pass

    def unwatch(self, descriptor):
        self.ready.pop(descriptor, None)

    def later(self, delay_s, call):
        heapq.heappush(self.timers, (self.clock + delay_s, next(self.order), call))
        return Timer()

    def turn(self):
        poller = select.poll()
        for descriptor in self.ready:
            poller.register(descriptor, select.POLLIN)
        for descriptor, _ in poller.poll(0):
            if descriptor in self.ready:
                self.ready[descriptor]()

    def pass_time(self, seconds):
        self.clock += seconds
        while self.timers and self.timers[0][0] <= self.clock:
            heapq.heappop(self.timers)[2]()


class Process:
    """The other side of a host's channel: takes members in as they come."""

    def __init__(self, pid, sock):
        self.pid = pid
        self.channel = Channel(sock, queue_bytes=1 << 20, body_bytes=1 << 20, descriptors=8)
        self.members = {}
        self.signals = []

    def take_in(self):
        for message in self.channel.receive():
            assert message.kind == Kind.JOIN
            channel, output = message.descriptors
            os.close(output)
            self.members[message.head["instance"]] = Channel(
                socket.socket(fileno=channel), queue_bytes=1 << 20, body_bytes=1 << 20, descriptors=8
            )

    def close(self):
        self.channel.close()
        for member in self.members.values():
            member.close()


class Books(RuleBasedStateMachine):
    @initialize()
    def begin(self):
        self.loop = Turns()
        loop: Any = self.loop  # what of a Loop is used here
        self.pids = itertools.count(100)
        self.names = itertools.count()
        self.processes: dict[int, Process] = {}
        self.hosts: dict[int, HostChild] = {}
        self.members: dict[str, Member] = {}
        self.ended: list[Member] = []
        self.books = Hosts(
            loop,
            kill_s=KILL_S,
            started=self.started,
            ended=self.ended.append,
            start=self.start,
            signal_host=lambda pid, number: self.processes[pid].signals.append(number),
        )

    def started(self, host):
        self.hosts[host.pid] = host

    def start(self, order, talk, lost):
        ours, theirs = pair()
        loop: Any = self.loop
        pid = next(self.pids)
        self.processes[pid] = Process(pid, theirs)
        peer = Peer(loop, Channel(ours, queue_bytes=1 << 20, body_bytes=0), heard=None, lost=lost)
        return HostChild(order.host, Started(pid, pid, -1), peer)

    def some(self, data, alive=True):
        there = [name for name, member in self.members.items() if not alive or member.life is not Life.ENDED]
        return self.members[data.draw(strategies.sampled_from(there))] if there else None

    @rule(host=NAMES)
    def spawn(self, host):
        name = f"m{next(self.names)}"
        open_before = {h.pid for h in self.hosts.values() if h.name == host and h.life is not Life.ENDED and h.members}
        self.members[name] = member = self.books.join(Spawn(name, COMMAND, {"instance": name}, {}, host))
        assert member.host.name == host and member.life is member.host.life
        if member.host.pid not in open_before:
            assert set(member.host.members) == {name}, "a new process begins with one member"

    @rule(data=strategies.data(), well=strategies.booleans())
    def executes(self, data, well):
        starting = [host for host in self.hosts.values() if host.life is Life.STARTING]
        if starting:
            host = data.draw(strategies.sampled_from(starting))
            host.life = Life.RUNNING
            for member in self.books.executes(host, well=well):
                assert member.life is Life.RUNNING
                if not well:
                    member.release()
                    self.members.pop(member.name)

    @rule(data=strategies.data())
    def member_leaves(self, data):
        member = self.some(data)
        if member is not None:
            process = self.processes[member.pid]
            if member.host.life is not Life.ENDED:
                process.take_in()
            if member.name in process.members:
                process.members[member.name].leave()
                self.loop.turn()
                assert member.life is Life.ENDED and member.end == Exit(code=0, signal=None)

    @rule(data=strategies.data())
    def host_dies(self, data):
        living = [host for host in self.hosts.values() if host.life is not Life.ENDED]
        if living:
            host = data.draw(strategies.sampled_from(living))
            members = list(host.members.values())
            self.processes[host.pid].close()
            if data.draw(strategies.booleans()):
                self.loop.turn()  # its channels may close long before it can be reaped
                assert all(member.life is not Life.ENDED or member.dismissed for member in members), "told before anybody knows how"
            over = data.draw(strategies.booleans())
            host.life, host.end = Life.ENDED, Exit(code=None, signal=11, max_rss_bytes=1, cpu_s=1.0, over_memory=over)
            self.books.reaped(host)
            assert all(member.life is Life.ENDED for member in members)
            told = Exit(code=None, signal=11, over_memory=over, with_host=True)
            assert all(member.end == told for member in members if not member.dismissed)

    @rule(data=strategies.data(), number=strategies.sampled_from([signal.SIGTERM, signal.SIGKILL]))
    def signalled(self, data, number):
        member = self.some(data, alive=False)
        if member is not None:
            before = list(self.processes[member.pid].signals)
            self.books.signal(member, number)
            told = number == signal.SIGKILL and member.life is not Life.ENDED
            assert self.processes[member.pid].signals == before + ([number] if told else [])

    @rule(data=strategies.data())
    def dismissed(self, data):
        member = self.some(data)
        if member is not None:
            self.books.dismiss(member)

    @rule(seconds=strategies.sampled_from([0.1, KILL_S]))
    def time_passes(self, seconds):
        self.loop.turn()
        self.loop.pass_time(seconds)

    @invariant()
    def each_end_is_told_once(self):
        assert len(self.ended) == len(set(self.ended))
        assert {member for member in self.members.values() if member.life is Life.ENDED} <= set(self.ended)

    @invariant()
    def a_living_member_is_in_its_host_s_book_and_no_dead_one_is(self):
        for member in self.members.values():
            assert (member.life is not Life.ENDED) == (member.host.members.get(member.name) is member)
            if member.life is not Life.ENDED:
                assert member.host.life is not Life.ENDED

    @invariant()
    def one_open_host_a_name_and_none_without_members(self):
        for name, host in self.books._open.items():
            assert host.name == name and host.members and host.life is not Life.ENDED

    def teardown(self):
        for process in self.processes.values():
            process.close()
        for host in self.hosts.values():
            host.peer.close()
        for member in self.members.values():
            member.release()


TestBooks = Books.TestCase
TestBooks.settings = settings(max_examples=count(60, long=1000), stateful_step_count=30, deadline=None)
