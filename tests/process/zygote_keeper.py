"""The part of a keeper that has to do with zygotes, as a process of its own: orders as JSON lines on stdin, what happens on stdout.

As root, or as an ordinary user who makes himself a user namespace first. The loop, the walls and the zygotes are the keeper's own.
"""

import dataclasses
import json
import os
import signal
import socket
import sys
import time

sys.path.insert(0, sys.argv[1])

from fornada.keeper import children, orders
from fornada.keeper.config import WallsConfig
from fornada.keeper.loop import Loop
from fornada.keeper.records import Life
from fornada.keeper.walls import Walls
from fornada.keeper.zygotes import Listener, Zygotes
from fornada_sdk.sandbox import syscalls
from fornada_sdk.wire.framing import frames, split
from fornada_sdk.wire.messages import Kind, encode, invoke_head, split_head

KILL_S = 1.0


def main():
    told = json.loads(sys.argv[2])
    apart = told["walls"]["level"] in ("full", "namespaces")
    if apart:
        become_first()
    else:
        syscalls.become_subreaper()
    Stand(told).run()


def become_first():
    """Process 1 of a pid namespace that belongs to the user namespace we are in."""
    if os.geteuid() != 0:
        uid, gid = os.geteuid(), os.getegid()
        syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWPID | syscalls.CLONE_NEWNS)
        for name, line in (("setgroups", "deny"), ("gid_map", f"{gid} {gid} 1"), ("uid_map", f"{uid} {uid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(line)
    else:
        syscalls.unshare(syscalls.CLONE_NEWPID)
    pid = os.fork()
    if pid:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 0xFF)
    syscalls.die_with_parent()


class Stand:
    def __init__(self, told):
        self.loop = Loop()
        self.walls = Walls(WallsConfig(**told["walls"]), self.loop)
        listener = Listener(
            started=self.started,
            came_up=lambda child: self.say("up", child.name, pid=child.outer, spare=child.start == "spare"),
            ended=self.ended,
            unforked=lambda child, why: self.say("unforked", child.name, why=why),
            lost=lambda child, broke, why: self.say("lost", child.name, why=why),
            changed=lambda zygote: self.say(
                "zygote", zygote.name, state=zygote.state.value, reason=zygote.reason, pid=zygote.outer, **zygote.facts
            ),
        )
        self.zygotes = Zygotes(self.loop, self.walls, listener, kill_s=KILL_S, fork_s=told["fork_s"])
        self.guards = {}
        self.instances = {}
        self.links = {}
        self.began = {}
        self.rest = b""
        self.loop.on_signal(signal.SIGCHLD, self.reap)
        self.loop.watch(0, self.order)

    def run(self):
        self.say("standing", "")
        self.loop.run()

    def say(self, what, name, **more):
        sys.stdout.write(json.dumps({"what": what, "name": name, **more}) + "\n")
        sys.stdout.flush()

    def order(self):
        data = os.read(0, 65536)
        if not data:
            self.loop.stop()
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            order = json.loads(line)
            getattr(self, f"do_{order.pop('do')}")(**order)

    def do_want(self, **head):
        try:
            self.zygotes.want(orders.read_zygote(head))
        except OSError as error:
            self.say("refused", head["zygote"], why=str(error))

    def do_retire(self, zygote):
        self.zygotes.retire(zygote)

    def do_spawn(self, **head):
        self.began[head["instance"]] = time.perf_counter()
        child = self.zygotes.fork(orders.read_spawn(head))
        if child is None:
            self.say("unforked", head["instance"], why="there is no zygote")
            return
        self.instances[child.name] = child

    def do_ask(self, instance, body):
        """One request on a new link, and its answer."""
        link, *others = self.instances[instance].attach(1)
        for descriptor in others:
            os.close(descriptor)
        sock = socket.socket(fileno=link)
        sock.settimeout(30)
        head = {"request_id": "r", "trace_id": "t", "account": "local"}
        for packet in frames(Kind.INVOKE, Kind.PART, 1, invoke_head(encode(head), 30.0), [json.dumps(body).encode()]):
            sock.send(packet)
        while packet := sock.recv(65536):
            for kind, _, _, _, payload in split(packet):
                if kind == Kind.FAILED:
                    self.say("answer", instance, failed=json.loads(bytes(payload)))
                    return
                if kind == Kind.ANSWER:
                    status, answer = split_head(payload)
                    took_s = time.perf_counter() - self.began[instance]
                    self.say("answer", instance, head=json.loads(status), body=json.loads(bytes(answer) or b"null"), took_s=took_s)
                    self.links[instance] = sock
                    return
        self.say("answer", instance, failed="closed")

    def do_output(self, instance):
        try:
            text = os.read(self.instances[instance].output, 1 << 20).decode(errors="replace")
        except BlockingIOError:
            text = ""
        self.say("output", instance, text=text)

    def do_look(self):
        self.say("here", "")

    def do_signal(self, instance, number):
        self.zygotes.signal(self.instances[instance], number)

    def do_state(self, zygote):
        found = next(each for each in self.zygotes.all() if each.name == zygote)
        spares = [{"pid": fork.outer, "there": fork.pidfd >= 0} for fork in found.spares]
        self.say("state", zygote, spares=spares, forks=len(found.forks), descriptors=len(os.listdir("/proc/self/fd")))

    def started(self, zygote):
        self.guards[zygote.pid] = zygote
        self.loop.watch(zygote.report, lambda: self.reported(zygote))

    def reported(self, zygote):
        text = children.read_report(zygote.report)
        if text is None:
            return
        self.loop.unwatch(zygote.report)
        os.close(zygote.report)
        zygote.life = Life.RUNNING
        if text:
            self.zygotes.refused(zygote, text)

    def ended(self, child):
        end = child.end
        self.say("ended", child.name, code=end.code, signal=end.signal, max_rss_bytes=end.max_rss_bytes, over_memory=end.over_memory)

    def reap(self):
        while (pid := children.next_dead()) is not None:
            end = children.reap(pid)
            zygote = self.guards.pop(pid, None)
            if zygote is not None:
                if zygote.life is Life.STARTING:
                    self.reported(zygote)
                zygote.enclosure.release()
                zygote.life, zygote.end = Life.ENDED, dataclasses.replace(end, over_memory=zygote.enclosure.over_memory)
                self.zygotes.reaped(zygote)


if __name__ == "__main__":
    main()
