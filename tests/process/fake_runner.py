"""A runner for the keeper's tests: argv is the folder of fornada_sdk. It answers JSON packets on each link that it was given.

The assignment's `mode`: normal; deaf (never reads its channel); garbage, empty, flood (what it sends the keeper);
stubborn (ignores SIGTERM, a member the keeper's STOP); closes (closes its channel and lives on).
A process that is told JOIN is a host: each of its members answers on its own links.
"""

import json
import os
import resource
import select
import signal
import socket
import sys
import time

sys.path.insert(0, sys.argv[1])
from fornada_sdk.wire.channel import Channel, ChannelClosed
from fornada_sdk.wire.messages import Kind


def detach() -> int:
    """The outer pid of a process that leaves our session and loses its parent at once."""
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(write_end, os.readlink("/proc/self").encode())
            os.close(write_end)
            time.sleep(600)
        os._exit(0)
    os.close(write_end)
    os.wait()
    return int(os.read(read_end, 20))


def child() -> int:
    """The outer pid of a child that stays."""
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        os.write(write_end, os.readlink("/proc/self").encode())
        time.sleep(600)
        os._exit(0)
    return int(os.read(read_end, 20))


def spin() -> int:
    """The outer pid of a child in a session of its own that never rests."""
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.write(write_end, os.readlink("/proc/self").encode())
        while True:
            pass
    return int(os.read(read_end, 20))


def facts(assignment, epochs):
    return {
        "pid": os.getpid(),
        "outer": int(os.readlink("/proc/self")),
        "sid": os.getsid(0),
        "epochs": epochs,
        "assignment_bytes": len(json.dumps(assignment)),
        "environ": dict(os.environ),
        "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")),
        "stdin": os.readlink("/proc/self/fd/0"),
        "cwd": os.getcwd(),
        "umask": f"{os.umask(0o22):03o}",
        "sigpipe": open("/proc/self/status").read().split("SigIgn:")[1].split()[0],
        "blocked": open("/proc/self/status").read().split("SigBlk:")[1].split()[0],
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "core": resource.getrlimit(resource.RLIMIT_CORE),
        "data": resource.getrlimit(resource.RLIMIT_DATA),
        "fsize": resource.getrlimit(resource.RLIMIT_FSIZE),
        "nice": os.nice(0),
    }


class Talk:
    """One instance's conversation with the keeper, and what belongs to it."""

    def __init__(self, sock, output):
        self.channel = Channel(sock, queue_bytes=1 << 20, body_bytes=1 << 30, descriptors=4)
        self.output = output
        self.assignment = {}
        self.epochs = []
        self.stopped = None


def main() -> None:
    sock = socket.socket(fileno=3)
    poll = select.poll()
    poll.register(3, select.POLLIN)
    talks = {3: Talk(sock, 1)}
    links: dict[int, tuple[socket.socket, Talk]] = {}
    while True:
        for descriptor, _ in poll.poll():
            if descriptor in links:
                link, talk = links[descriptor]
                packet = link.recv(65536)
                if not packet:
                    poll.unregister(descriptor)
                    links.pop(descriptor)[0].close()
                    continue
                order = json.loads(packet)
                if order["do"] == "exit":
                    os._exit(order["code"])
                if order["do"] == "print":
                    os.write(talk.output, order["text"].encode())
                if order["do"] == "flood":
                    os.write(talk.output, b"x" * order["bytes"])
                if order["do"] == "leave":
                    talk.channel.leave()
                if order["do"] == "close":
                    poll.unregister(talk.channel.fileno())
                    talks.pop(talk.channel.fileno()).channel.close()
                made = {"detach": detach, "child": child, "spin": spin}.get(order["do"], lambda: None)()
                about = {**facts(talk.assignment, talk.epochs), "stopped": talk.stopped, "members": len(talks) - 1}
                link.send(json.dumps(made if made else about).encode())
                continue
            talk = talks[descriptor]
            try:
                for message in talk.channel.receive():
                    if message.kind == Kind.ASSIGN:
                        talk.assignment = message.head
                        misbehave(str(talk.assignment.get("mode", "normal")), sock)
                    elif message.kind == Kind.JOIN:
                        joined = Talk(socket.socket(fileno=message.descriptors[0]), message.descriptors[1])
                        joined.assignment = message.head
                        talks[joined.channel.fileno()] = joined
                        poll.register(joined.channel.fileno(), select.POLLIN)
                        misbehave(str(message.head.get("mode", "normal")), joined.channel._sock)
                    elif message.kind == Kind.ATTACH:
                        talk.epochs.append(message.head["epoch"])
                        link = socket.socket(fileno=message.descriptors[0])
                        links[link.fileno()] = link, talk
                        poll.register(link.fileno(), select.POLLIN)
                    elif message.kind == Kind.STOP:
                        talk.stopped = message.head["grace_s"]
                        if talk.assignment.get("mode") != "stubborn":
                            talk.channel.leave()
            except ChannelClosed:
                poll.unregister(descriptor)
                talks.pop(descriptor).channel.close()
                if descriptor == 3:
                    return


def misbehave(mode: str, sock: socket.socket) -> None:
    if mode == "deaf":
        time.sleep(600)
    if mode == "garbage":
        sock.setblocking(True)
        sock.send(os.urandom(1000))
        time.sleep(600)
    if mode == "empty":
        sock.send(b"")
        time.sleep(600)
    if mode == "flood":
        ours, theirs = socket.socketpair()
        sock.setblocking(True)
        try:
            while True:
                socket.send_fds(sock, [b"\0" * 60000], [ours.fileno(), theirs.fileno()] * 100)
        except OSError:
            time.sleep(600)
    if mode == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if mode == "closes":
        sock.close()
        time.sleep(600)


if __name__ == "__main__":
    main()
