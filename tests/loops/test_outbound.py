"""A model reaches the hosts that its version names, and no other: the runner's proxy against the node's gate, over a real channel."""

import asyncio
import hashlib
import http.client
import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from fornada.core.policy.outbound import Place
from fornada.node.outbound.gate import CONNECTIONS_MOST
from tests.bounds import bound
from tests.harness.outbound import MODEL, Crossroads, Host, crossroads, echo, host, never_held_up, within


@pytest.fixture
async def roads(tmp_path: Path) -> AsyncIterator[Crossroads]:
    async with crossroads(tmp_path) as made:
        yield made


@pytest.fixture
async def echoes() -> AsyncIterator[Host]:
    async with host(echo) as made:
        yield made


async def until(true: object, what: str) -> None:
    async with asyncio.timeout(bound(10)):
        while not true():  # type: ignore[operator]
            await asyncio.sleep(0.005)


async def test_bytes_go_both_ways_unchanged_and_are_counted(roads: Crossroads, echoes: Host) -> None:
    roads.open(echoes.pair, allow_private=[echoes.pair])
    reader, writer = await roads.connect(echoes.pair)
    sent = bytes(range(256)) * 8192

    async def send() -> None:
        writer.write(sent)
        await writer.drain()
        writer.write_eof()

    sending = asyncio.ensure_future(send())
    received = await within(reader.read())
    await sending
    assert hashlib.sha256(received).digest() == hashlib.sha256(sent).digest()
    writer.close()
    await until(lambda: roads.counted("closed"), "its end to be counted")
    assert (roads.bytes("sent"), roads.bytes("received")) == (len(sent), len(sent))
    (line,) = [json.loads(line) for line in roads.log.read_text().splitlines()]
    assert {
        "event": "outbound.ended",
        "model": MODEL,
        "instance": "traveller-1",
        "host": echoes.pair,
        "end": "closed",
    }.items() <= line.items()
    assert line["sent_bytes"] == line["received_bytes"] == len(sent)


async def test_a_host_may_speak_first(roads: Crossroads) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 welcome\r\n")
        await reader.read()

    async with host(greet) as greeter:
        roads.open(greeter.pair, allow_private=[greeter.pair])
        reader, writer = await roads.connect(greeter.pair)
        assert await within(reader.readline()) == b"220 welcome\r\n"
        writer.close()


async def test_a_side_that_has_said_all_still_hears(roads: Crossroads) -> None:
    async def sums(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"%d" % len(await reader.read()))

    async with host(sums) as summing:
        roads.open(summing.pair, allow_private=[summing.pair])
        reader, writer = await roads.connect(summing.pair)
        writer.write(b"x" * 100_000)
        writer.write_eof()
        assert await within(reader.read()) == b"100000"
        writer.close()


async def test_what_is_not_named_is_refused_and_never_asked(roads: Crossroads, echoes: Host) -> None:
    roads.open("api.example.com:443", allow_private=[echoes.pair])
    said = await roads.refused(echoes.pair)
    assert said == f"403 {echoes.pair} is refused: `network` under [resources] in model.toml doesn't name it"
    assert (await roads.refused("api.example.com:80")).startswith("403 api.example.com:80 is refused")
    assert (await roads.refused("sub.api.example.com:443")).startswith("403 ")
    assert (await roads.refused("2130706433:80")).startswith("403 ")
    assert not echoes.visits
    assert roads.counted("refused") == 4


async def test_a_private_address_needs_the_operators_word_and_is_not_told(roads: Crossroads, echoes: Host) -> None:
    roads.open(f"inner.example:{echoes.port}", look_up=lambda wanted: ["127.0.0.1"])
    said = await roads.refused(f"inner.example:{echoes.port}")
    assert said.startswith(f"403 inner.example:{echoes.port} is at an address that isn't public") and "127.0.0.1" not in said
    assert not echoes.visits
    assert "127.0.0.1 is loopback" in roads.log.read_text()


async def test_the_node_s_own_public_address_is_no_way_back_to_its_services(roads: Crossroads) -> None:
    roads.open("outer.example:443", look_up=lambda wanted: ["8.8.8.8"], own=["8.8.8.8"])
    said = await roads.refused("outer.example:443")
    assert said.startswith("403 outer.example:443 is at an address that isn't public or is the node's own") and "8.8.8.8" not in said
    (line,) = [json.loads(line) for line in roads.log.read_text().splitlines()]
    assert line["why"] == "8.8.8.8 is this machine's own"


async def test_the_address_that_was_checked_is_the_one_that_is_connected_to(roads: Crossroads, echoes: Host) -> None:
    asked: list[Place] = []

    def rebinding(wanted: Place) -> Sequence[str]:
        asked.append(wanted)
        return ["127.0.0.1"] if len(asked) == 1 else ["192.0.2.1"]

    pair = f"store.internal:{echoes.port}"
    roads.open(pair, allow_private=[pair], look_up=rebinding)
    reader, writer = await roads.connect(f"STORE.Internal.:{echoes.port}")
    writer.write(b"here")
    assert await within(reader.readexactly(4)) == b"here"
    assert len(asked) == 1 and len(echoes.visits) == 1
    writer.close()


async def test_where_one_address_does_not_answer_the_next_one_is_tried(roads: Crossroads, echoes: Host) -> None:
    pair = f"store.internal:{echoes.port}"
    roads.open(pair, allow_private=[pair], look_up=lambda wanted: ["127.0.0.77", "127.0.0.1"])
    _, writer = await roads.connect(pair)
    writer.close()


async def test_what_cannot_be_reached_is_told_as_that(roads: Crossroads) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        pair = f"127.0.0.1:{taken.getsockname()[1]}"

    def unknown(wanted: Place) -> Sequence[str]:
        raise OSError(-2, "Name or service not known")

    roads.open(pair, "nowhere.example:80", allow_private=[pair], look_up=unknown)
    assert await roads.refused(pair) == f"502 {pair} can't be reached: Connection refused"
    assert await roads.refused("nowhere.example:80") == "502 nowhere.example:80 can't be reached: Name or service not known"
    assert roads.counted("failed") == 2


async def test_a_name_service_that_hangs_costs_its_callers_their_time_and_no_more(roads: Crossroads, echoes: Host) -> None:
    answered = threading.Event()

    def hangs(wanted: Place) -> Sequence[str]:
        answered.wait(bound(30))
        return ["127.0.0.1"]

    roads.open("slow.example:80", echoes.pair, allow_private=[echoes.pair], look_up=hangs, connect_s=0.3)
    waiting = asyncio.ensure_future(roads.refused("slow.example:80"))
    _, writer = await roads.connect(echoes.pair)
    writer.close()
    assert await within(waiting) == "502 slow.example:80 can't be reached: no connection within 0.3 s"
    answered.set()


async def test_a_connection_without_a_byte_is_ended(roads: Crossroads, echoes: Host) -> None:
    roads.open(echoes.pair, allow_private=[echoes.pair], idle_s=0.2)
    reader, writer = await roads.connect(echoes.pair)
    assert await within(reader.read()) == b""
    writer.close()
    await until(lambda: roads.counted("idle"), "its end to be counted")


async def test_a_reader_that_stops_costs_its_buffers_and_holds_up_nobody(roads: Crossroads, echoes: Host) -> None:
    given = 0

    async def pours(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal given
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()
            given += 65536

    async with host(pours) as pouring:
        roads.open(pouring.pair, echoes.pair, allow_private=[pouring.pair, echoes.pair])
        sock = socket.create_connection(("127.0.0.1", roads.proxy().port))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(f"CONNECT {pouring.pair} HTTP/1.1\r\n\r\n".encode())
        before = -1
        with never_held_up(sock.close):
            while given != before or not given:  # until nothing moves any more
                before = given
                await asyncio.sleep(0.3)
            assert given < 32 * 1024 * 1024  # what three pairs of sockets hold, and two buffers of 64 KiB
            reader, writer = await roads.connect(echoes.pair)
            writer.write(b"still here")
            assert await within(reader.readexactly(10)) == b"still here"
            writer.close()
        sock.close()
        await until(lambda: roads.counted("broken"), "its end to be counted")


async def test_an_instance_has_so_many_connections_and_the_next_one_waits_for_a_place(roads: Crossroads, echoes: Host) -> None:
    roads.open(echoes.pair, allow_private=[echoes.pair])
    open_ones = [await roads.connect(echoes.pair) for _ in range(CONNECTIONS_MOST)]
    assert (await roads.refused(echoes.pair)).startswith(f"503 {echoes.pair} has to wait")
    open_ones.pop()[1].close()
    await until(lambda: roads.counted("closed"), "a place to become free")
    open_ones.append(await roads.connect(echoes.pair))
    for _, writer in open_ones:
        writer.close()


async def test_the_end_of_an_instance_ends_its_connections(roads: Crossroads, echoes: Host) -> None:
    gate = roads.open(echoes.pair, allow_private=[echoes.pair])
    reader, writer = await roads.connect(echoes.pair)
    gate.close()
    assert await within(reader.read()) == b""
    writer.close()
    await until(lambda: roads.counted("stopped"), "its end to be counted")
    assert roads.way is not None and roads.way.open == 0


async def test_a_successor_answers_what_was_asked_while_nobody_was_there(roads: Crossroads, echoes: Host) -> None:
    roads.open(echoes.pair, allow_private=[echoes.pair]).close()
    asked = asyncio.ensure_future(roads.connect(echoes.pair))
    await asyncio.sleep(0.05)
    assert not asked.done()
    roads.open(echoes.pair, allow_private=[echoes.pair])
    reader, writer = await within(asked)
    writer.write(b"again")
    assert await within(reader.readexactly(5)) == b"again"
    writer.close()


# ---- the clients that models have


async def _http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Tells what it was asked, and leaves the connection open as servers of old do."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = next((int(line.split(":")[1]) for line in head.split("\r\n") if line.lower().startswith("content-length:")), 0)
    body = json.dumps({"head": head, "body": (await reader.readexactly(length)).decode()}).encode()
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    await reader.read()


async def test_an_http_address_is_asked_as_a_server_is_asked(roads: Crossroads) -> None:
    async with host(_http) as server:
        roads.open(server.pair, allow_private=[server.pair])
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": f"http://127.0.0.1:{roads.proxy().port}"}))

        def ask(data: bytes | None) -> dict[str, str]:
            request = urllib.request.Request(f"http://{server.pair}/a/b?c=d", data=data, headers={"Proxy-Authorization": "secret"})
            with opener.open(request, timeout=bound(10)) as answer:
                return dict(json.load(answer))

        asked = await asyncio.to_thread(ask, None)
        assert asked["head"].startswith("GET /a/b?c=d HTTP/1.1\r\n")
        assert f"Host: {server.pair}\r\n" in asked["head"] and "Connection: close" in asked["head"] and "secret" not in asked["head"]
        posted = await asyncio.to_thread(ask, b"x=1")
        assert posted["head"].startswith("POST /a/b?c=d HTTP/1.1\r\n") and posted["body"] == "x=1"


async def test_a_second_request_never_goes_to_the_host_of_the_first(roads: Crossroads) -> None:
    async with host(_http) as server:
        roads.open(server.pair, allow_private=[server.pair])

        def ask_twice() -> str:
            client = http.client.HTTPConnection("127.0.0.1", roads.proxy().port, timeout=bound(10))
            client.request("GET", f"http://{server.pair}/one")
            first = json.loads(client.getresponse().read())["head"]
            with pytest.raises((ConnectionError, http.client.HTTPException)):
                client.request("GET", "http://other.example/two")
                client.getresponse()
            client.close()
            return str(first)

        assert (await asyncio.to_thread(ask_twice)).startswith("GET /one ")
        assert len(server.visits) == 1


async def test_a_refusal_reaches_the_author_in_the_words_of_his_library(roads: Crossroads) -> None:
    roads.open("api.example.com:443")
    proxy = f"http://127.0.0.1:{roads.proxy().port}"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": proxy, "https": proxy}))

    def ask(url: str) -> str:
        with pytest.raises(urllib.error.URLError) as caught:
            opener.open(url, timeout=bound(10))
        if isinstance(caught.value, urllib.error.HTTPError):
            caught.value.close()
        return str(caught.value)

    for url, place in (("https://other.example/", "other.example:443"), ("http://other.example/", "other.example:80")):
        said = await asyncio.to_thread(ask, url)
        assert "403" in said and f"{place} is refused" in said and "model.toml" in said


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "400"),
        ("CONNECT example.com HTTP/1.1\r\n\r\n", "400"),
        ("CONNECT :80 HTTP/1.1\r\n\r\n", "400"),
        ("CONNECT example.com:eighty HTTP/1.1\r\n\r\n", "400"),
        ("GET https://example.com/ HTTP/1.1\r\n\r\n", "400"),
        ("GET ftp://example.com/ HTTP/1.1\r\n\r\n", "400"),
        ("POST http://example.com/ HTTP/1.1\r\nContent-Length: x\r\n\r\n", "400"),
        (f"CONNECT {'a' * 2000}:80 HTTP/1.1\r\n\r\n", "400"),
        ("nonsense\r\n\r\n", "400"),
        ("GET http://example.com/ HTTP/1.1\r\nX: " + "y" * 40000 + "\r\n\r\n", "431"),
        ("CONNECT [fe80::1%25lo]:80 HTTP/1.1\r\n\r\n", "403"),
        ("GET http://user:secret@example.com:8080?q HTTP/1.1\r\n\r\n", "403"),
    ],
)
async def test_what_is_no_request_to_a_proxy_is_told_so(roads: Crossroads, head: str, status: str) -> None:
    roads.open()
    _, writer, line = await roads.ask(head)
    assert line.startswith(f"HTTP/1.1 {status} ") and "secret" not in line
    writer.close()
