"""The client: wrk where it is installed, else a small one of our own, which takes more CPU of its own and says so."""

import asyncio
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen

WRK = shutil.which("wrk")
SCRIPT = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Authorization"] = %(token)s
wrk.body = io.open(%(body)s, "rb"):read("*a")
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('RESULT {"requests": %%d, "duration_s": %%f, "errors": %%d, "p50_ms": %%f, "p99_ms": %%f}\\n', summary.requests,
    summary.duration / 1e6, e.connect + e.read + e.write + e.status + e.timeout, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
"""


class Target(NamedTuple):
    """Where to send what."""

    host: str
    port: int
    path: str
    body: bytes
    token: str = "bench"


class Outcome(NamedTuple):
    """What the client saw."""

    requests: int
    duration_s: float
    errors: int
    p50_ms: float
    p99_ms: float


def name() -> str:
    """The client that `drive` uses."""
    return "wrk -t1" if WRK else "own client (wrk isn't installed; Debian: apt install wrk)"


def ask(target: Target) -> bytes:
    """One answer. Raises OSError for a refusal."""
    url = f"http://{target.host}:{target.port}{target.path}"
    with urlopen(
        Request(url, data=target.body, headers={"content-type": "application/json", "authorization": f"Bearer {target.token}"}), timeout=60
    ) as answer:
        return bytes(answer.read())


def drive(target: Target, *, connections: int, seconds: float) -> Outcome:
    """Keeps `connections` busy for `seconds`. Raises RuntimeError where the client itself fails."""
    return _wrk(target, connections, seconds) if WRK else asyncio.run(_own(target, connections, seconds))


def _wrk(target: Target, connections: int, seconds: float) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="fornada-bench") as place:
        body, script = Path(place) / "body", Path(place) / "script.lua"
        body.write_bytes(target.body)
        script.write_text(SCRIPT % {"body": json.dumps(str(body)), "token": json.dumps(f"Bearer {target.token}")})
        # wrk counts in whole seconds; a shorter run is one second.
        duration = f"-d{max(1, round(seconds))}s"
        url = f"http://{target.host}:{target.port}{target.path}"
        command = [str(WRK), "-t1", f"-c{connections}", duration, "--timeout", "10s", "-s", str(script), url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=False)
        for line in done.stdout.splitlines():
            if line.startswith("RESULT "):
                return Outcome(**json.loads(line.removeprefix("RESULT ")))
    raise RuntimeError(f"wrk failed: {done.stdout}{done.stderr}")


async def _own(target: Target, connections: int, seconds: float) -> Outcome:
    head = f"POST {target.path} HTTP/1.1\r\nHost: {target.host}:{target.port}\r\nContent-Type: application/json\r\n"
    request = f"{head}Authorization: Bearer {target.token}\r\nContent-Length: {len(target.body)}\r\n\r\n".encode() + target.body
    began = time.perf_counter()
    end = began + seconds
    taken: list[float] = []
    errors = 0

    async def one() -> None:
        nonlocal errors
        reader, writer = await asyncio.open_connection(target.host, target.port)
        while (sent := time.perf_counter()) < end:
            writer.write(request)
            answer = await reader.readuntil(b"\r\n\r\n")
            fields = answer.lower()
            length = int(fields.partition(b"content-length:")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
            taken.append(time.perf_counter() - sent)
            errors += not answer.startswith(b"HTTP/1.1 200")
        writer.close()
        await writer.wait_closed()

    async with asyncio.timeout(seconds + 30), asyncio.TaskGroup() as group:
        for _ in range(connections):
            group.create_task(one())
    taken.sort()
    return Outcome(len(taken), time.perf_counter() - began, errors, taken[len(taken) // 2] * 1e3, taken[len(taken) * 99 // 100] * 1e3)


def listen(target: Target, *, streams: int, tokens: int, pause_s: float) -> Outcome:
    """Reads `streams` event streams of `tokens` each to their ends; a token is a request, and the times are those between tokens.

    They begin spread over one pause, for what arrives at the same moment is cheaper than what people ask for.
    """
    return asyncio.run(_listened(target, streams, tokens, pause_s))


async def _listened(target: Target, streams: int, tokens: int, pause_s: float) -> Outcome:
    head = f"POST {target.path} HTTP/1.1\r\nHost: {target.host}:{target.port}\r\nContent-Type: application/json\r\nConnection: close\r\n"
    request = f"{head}Authorization: Bearer {target.token}\r\nContent-Length: {len(target.body)}\r\n\r\n".encode() + target.body
    gaps: list[float] = []
    seen = errors = 0

    async def one(number: int) -> None:
        nonlocal seen, errors
        await asyncio.sleep(pause_s * number / streams)
        reader, writer = await asyncio.open_connection(target.host, target.port)
        writer.write(request)
        status = await reader.readline()
        mine, last = 0, 0.0
        async for line in reader:
            if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                continue
            now = time.perf_counter()
            if last:
                gaps.append(now - last)
            mine, last = mine + 1, now
        seen += mine
        errors += mine != tokens or b" 200 " not in status
        writer.close()
        await writer.wait_closed()

    began = time.perf_counter()
    async with asyncio.timeout(tokens * pause_s * 5 + 30), asyncio.TaskGroup() as group:
        for number in range(streams):
            group.create_task(one(number))
    gaps.sort()
    return Outcome(seen, time.perf_counter() - began, errors, gaps[len(gaps) // 2] * 1e3, gaps[len(gaps) * 99 // 100] * 1e3)
