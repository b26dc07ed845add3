"""A control plane for the keeper's tests. It accepts on the node's listening socket; a connection is one JSON line and one answer.

What it does at start, at a drain and when another one is to take its place stands in plan.json of the data directory, which it reads
at its start: {"start": "serve" | "crash" | "unusable" | "hang" | "refuse" | "crash welcomed" | "hang welcomed", "drain": "exit" |
"ignore" | "crash", "let_go": "yes" | "refuse" | "ignore" | "crash", "leave": "exit" | "stay"}. Words behind its name stand in its state.
"""

import asyncio
import json
import os
import signal
import socket
import sys
from pathlib import Path

import msgspec

from fornada.core.ports import Launch, Limits, Sandbox, SpawnRefused
from fornada.node import keeper_client

RUNNER = [sys.executable, "-I", "-S", str(Path(__file__).with_name("fake_runner.py"))]
SDK = str(Path(keeper_client.__file__).parents[2])


def settings():
    return json.loads(os.pread(int(os.environ["FORNADA_SETTINGS_FD"]), 1 << 20, 0))


class Control:
    def __init__(self, client, plan):
        self.client = client
        self.plan = plan
        self.processes = {process.instance: process for process in client.adopted}
        self.links = {}
        self.builds = {}
        self.over = asyncio.Event()
        self.reason = ""
        self.servers = []
        self.story: list[str] = []
        self.given = []
        self.tasks: list[asyncio.Future[None]] = []
        client.on_connection = lambda fd: self.tasks.append(asyncio.ensure_future(self.take(fd)))
        client.on_left = lambda: self.story.append("left")

    # ---- node.keeper_client.Replacing

    def let_go(self, patience_s):
        self.story.append("let go")
        match self.plan.get("let_go", "yes"):
            case "yes":
                self.stop_accepting()
                self.client.released(in_flight=0)
            case "refuse":
                self.client.refuse_handover("something is half done")
            case "crash":
                os.abort()

    def resume(self, reason):
        self.story.append("resume")
        self.tasks.append(asyncio.ensure_future(self.accept()))

    def leave(self):
        for fd in self.given:
            self.client.give(fd)
        if self.plan.get("leave") != "stay":
            asyncio.get_running_loop().call_later(0.05, self.over.set)

    async def accept(self):
        if not self.servers:
            self.servers = [await asyncio.start_server(self.handle, sock=listener.dup()) for listener in self.client.listeners]

    def stop_accepting(self):
        for server in self.servers:
            server.close()
        self.servers = []

    async def take(self, fd):
        self.story.append("connection")
        await self.handle(*await asyncio.open_connection(sock=socket.socket(fileno=fd)))

    def drain(self, reason, deadline_s):
        self.reason = reason
        self.story.append("drain")
        if self.plan.get("drain") == "crash":
            os.abort()
        if self.plan.get("drain") != "ignore":
            self.over.set()

    async def handle(self, reader, writer):
        order = json.loads(await reader.readline())
        if order.get("do") == "keep":  # for the successor, if there ever is one
            self.given.append(os.dup(writer.get_extra_info("socket").fileno()))
            writer.transport.abort()
            return
        try:
            answer = await getattr(self, "do_" + order.pop("do"))(**order)
        except SpawnRefused as error:
            answer = {"refused": str(error)}
        writer.write(json.dumps(answer).encode() + b"\n")
        await writer.drain()
        writer.close()

    async def do_state(self):
        return {
            "epoch": self.client.epoch,
            "pid": self.client.control_pid,
            "own_pid": int(os.readlink("/proc/self")),
            "keeper_pid": self.client.keeper_pid,
            "main_pid": self.client.main_pid,
            "adopted": {p.instance: {"pid": p.pid, "memo": dict(p.memo)} for p in self.client.adopted},
            "builds": self.client.adopted_builds,
            "words": sys.argv[1:],
            "story": self.story,
            "predecessor": self.client.predecessor,
            "descriptors": len(os.listdir("/proc/self/fd")),
            "stdin": os.readlink("/proc/self/fd/0"),
            "settings": settings(),
        }

    async def do_spawn(
        self, instance, mode="normal", argv=None, cwd="/", padding=0, limits=None, memo=None, env=None, host="", sandbox=None
    ):
        launch = Launch(
            instance=instance,
            argv=argv or [*RUNNER, SDK],
            env={"ONLY": "this"} if env is None else env,
            cwd=cwd,
            limits=Limits(**(limits or {})),
            sandbox=msgspec.convert(sandbox or {}, Sandbox),
            assignment={"mode": mode, "padding": "x" * padding},
            memo=memo or {},
            host=host,
        )
        began = asyncio.get_running_loop().time()
        process = await self.client.spawn(launch)
        took = asyncio.get_running_loop().time() - began
        self.processes[instance] = process
        return {"pid": process.pid, "took_s": took}

    async def do_spawn_and_leave(self, instance, **order):
        """Gives up before the answer can have come."""
        task = asyncio.ensure_future(self.do_spawn(instance, **order))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    async def do_ask(self, instance, **order):
        process = self.processes[instance]
        if instance not in self.links:
            self.links[instance] = socket.socket(fileno=os.dup(process.link))
            self.links[instance].setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self.links[instance], json.dumps({"do": "facts", **order.get("order", {})}).encode())
        return json.loads(await loop.sock_recv(self.links[instance], 1 << 20) or "null")

    async def do_output(self, instance, least=1):
        text = b""
        while len(text) < least:
            try:
                piece = os.read(self.processes[instance].output, 1 << 20)
            except BlockingIOError:
                await asyncio.sleep(0.005)
                continue
            if not piece:
                break
            text += piece
        return {"bytes": len(text), "text": text[:1000].decode()}

    async def do_line(self, instance):
        """The next line that it prints, or what it printed before its end."""
        text = b""
        while not text.endswith(b"\n"):
            try:
                piece = os.read(self.processes[instance].output, 1)
            except BlockingIOError:
                await asyncio.sleep(0.005)
                continue
            if not piece:
                break
            text += piece
        return text.decode()

    async def do_exited(self, instance):
        end = await self.processes[instance].exited()
        told = {"code": end.code, "signal": end.signal, "max_rss_bytes": end.max_rss_bytes, "cpu_s": end.cpu_s}
        return {**told, **({"over_memory": True} if end.over_memory else {})}

    async def do_signal(self, instance, number):
        self.processes[instance].signal(number)

    async def do_forget(self, instance):
        self.processes.pop(instance).forget()
        if instance in self.links:
            self.links.pop(instance).close()

    async def do_build(self, name, argv, log, wait=True):
        build = self.client.build(name, argv=argv, env={"PATH": "/usr/bin:/bin"}, cwd="/", limits=Limits(), sandbox=Sandbox(), log=log)
        self.builds[name] = task = asyncio.ensure_future(build)
        if not wait:
            return None
        end = await task
        return {"code": end.code, "signal": end.signal}

    async def do_joined(self, name):
        end = await self.builds[name]
        return {"code": end.code, "signal": end.signal}

    async def do_end_build(self, name):
        self.client.end_build(name)

    async def do_cancel(self, name):
        began = asyncio.get_running_loop().time()
        self.builds[name].cancel()
        await asyncio.wait([self.builds[name]])
        return {"cancelled": self.builds[name].cancelled(), "took_s": asyncio.get_running_loop().time() - began}

    async def do_raw(self, text):
        """Says it to the keeper as it stands."""
        socket.socket(fileno=os.dup(int(os.environ["FORNADA_KEEPER_FD"]))).send(text.encode("latin-1"))

    async def do_exit(self, code):
        os._exit(code)


async def run(plan):
    refused = "it will not" if plan.get("start") == "refuse" else ""
    client = await keeper_client.connect(int(os.environ["FORNADA_KEEPER_FD"]), release="2", refused=refused, wait_s=60)
    if plan.get("start") == "crash welcomed":
        os._exit(4)
    if plan.get("start") == "hang welcomed":
        await asyncio.Event().wait()
    control = Control(client, plan)
    client.on_drain = control.drain
    client.replacing = control
    await control.accept()
    port = client.listeners[0].getsockname()[1]
    with open(f"{settings()['data_dir']}/port", "w") as file:  # noqa: ASYNC230
        file.write(str(port))
    client.serving(f"http://127.0.0.1:{port}")
    await control.over.wait()
    control.stop_accepting()


def main() -> int:
    plan_file = Path(settings()["data_dir"], "plan.json")
    plan = json.loads(plan_file.read_text()) if plan_file.exists() else {}
    with open(plan_file.with_name("starts"), "a") as file:
        file.write(f"{os.readlink('/proc/self')}\n")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    match plan.get("start", "serve"):
        case "crash":
            return 3
        case "unusable":
            print("fornada: the store was written by a newer release", file=sys.stderr)
            return 78
        case "hang":
            signal.pause()
    try:
        import uvloop  # what the real one runs on
    except ImportError:
        asyncio.run(run(plan))
    else:
        uvloop.run(run(plan))
    return 0


if __name__ == "__main__":
    sys.exit(main())
