"""A conversation against the clock: who is silent, idle, slow, or never says goodbye."""

import asyncio
import base64
from types import SimpleNamespace
from typing import Any

import pytest
from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection, Ping, Pong, TextMessage

from fornada.edge.auth import ANYBODY
from fornada.edge.calls import Talk, Target
from fornada.edge.headers import read_facts
from fornada.edge.ids import Ids
from fornada.edge.keyring import Keyring
from fornada.edge.observer import Unobserved
from fornada.edge.problems import Style
from fornada.edge.server.conversation import CLOSE_S, FAILED, FRAMES, GOING_AWAY, IDLE_S, PAUSE_S, PING_S, SILENT_S, Conversation
from fornada.edge.server.lines import StatusLines
from fornada.edge.server.unsent import STALLED_S
from tests.loops.virtual import virtual


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.unsent = 0
        self.ended = ""

    reading = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        pass

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def is_closing(self) -> bool:
        return bool(self.ended)

    def abort(self) -> None:
        self.ended = "aborted"


class Door:
    def open(self, talk: Talk) -> None:
        talk.keep(self)
        talk.listens(0)

    left = False
    took = 0

    def leave(self) -> None:
        self.left = True

    def taken(self, count: int) -> None:
        self.took += count

    def say(self, kind: int, data: bytes) -> None:
        pass


class Stand:
    """A conversation that is open, and its clock."""

    def __init__(self) -> None:
        key = base64.b64encode(bytes(16))
        fields = [(b"Host", b"localhost"), (b"Upgrade", b"websocket"), (b"Sec-WebSocket-Key", key), (b"Sec-WebSocket-Version", b"13")]
        lines = StatusLines()
        lines.turn(1700000000.0)
        self.shared = SimpleNamespace(
            now=1000.0,
            trace=Ids().trace,
            lines=lines,
            observer=Unobserved(),
            unnamed=Unobserved().meter(""),
            open=True,
            departing=False,
            verbose=False,
            connections=set(),
        )
        self.transport = FakeTransport()
        self.door = Door()
        facts = read_facts(fields, Keyring())
        assert facts.caller is ANYBODY
        target = Target(door=self.door, style=Style.ENVELOPE)
        self.talk = Conversation(self.shared, self.transport, facts, target)  # type: ignore[arg-type]
        self.talk._heard = self.talk._spoke = self.talk._asked = 1000.0
        self.talk.start(b"GET", b"")
        self.client = Connection(ConnectionType.CLIENT)
        self.transport.written = self.transport.written.partition(b"\r\n\r\n")[2]

    def wait(self, seconds: float) -> None:
        """The clock goes on, a tick each second."""
        for _ in range(int(seconds)):
            self.shared.now += 1.0
            self.talk.look_at_the_clock()

    def said(self) -> list[Any]:
        """What has been sent since the last look."""
        data, self.transport.written = self.transport.written, b""
        self.client.receive_data(data)
        return list(self.client.events())

    def hear(self, event: Any) -> None:
        self.talk.data_received(self.client.send(event))


@pytest.fixture
def stand() -> Stand:
    return Stand()


def codes(events: list[Any]) -> list[int]:
    return [event.code for event in events if isinstance(event, CloseConnection)]


def test_who_says_nothing_is_asked_and_given_up(stand: Stand):
    stand.wait(PING_S - 1)
    assert stand.said() == []
    stand.wait(2)
    assert [type(event) for event in stand.said()] == [Ping]
    stand.wait(SILENT_S)
    assert codes(stand.said()) == [FAILED]
    assert stand.door.left
    stand.wait(CLOSE_S + 2)
    assert stand.transport.ended == "closed"


def test_who_answers_is_kept_until_nothing_was_said_for_long(stand: Stand):
    for _ in range(int(IDLE_S / 10) - 1):
        stand.wait(10)
        for event in stand.said():
            assert isinstance(event, Ping)
        stand.hear(Pong())
    assert not stand.door.left
    stand.hear(TextMessage(data="here"))
    stand.wait(5)
    assert codes(stand.said()) == []
    for _ in range(int(IDLE_S / 10)):
        stand.hear(Pong())
        stand.wait(10)
    assert codes(stand.said()) == [GOING_AWAY]


def test_who_takes_nothing_is_cut_off(stand: Stand):
    stand.talk.say(b"x" * 100_000, text=True)
    taken = stand.door.took
    stand.transport.unsent = 100_000
    stand.talk.pause_writing()
    stand.talk.say(b"y" * 1000, text=True)
    assert stand.door.took == taken, "the model is held back"
    stand.hear(Pong())
    stand.wait(STALLED_S - 5)
    stand.transport.unsent = 90_000
    stand.hear(Pong())
    stand.wait(STALLED_S - 5)
    assert stand.talk.busy and not stand.door.left, "it takes a little"
    stand.hear(Pong())
    stand.wait(10)
    assert stand.transport.ended == "aborted"


def test_who_takes_nothing_of_the_little_that_is_left_at_the_end_is_cut_off(stand: Stand):
    stand.transport.unsent = 1000  # less than a transport calls full
    stand.wait(SILENT_S + CLOSE_S + 5)
    assert stand.transport.ended == "closed" and not stand.talk.busy, "as its socket still has to"
    stand.wait(STALLED_S - 10)
    stand.transport.unsent = 900
    stand.wait(STALLED_S - 5)
    assert stand.transport.ended == "closed", "it takes a little"
    stand.wait(10)
    assert stand.transport.ended == "aborted"


def test_the_model_goes_on_when_there_is_room_again(stand: Stand):
    stand.talk.pause_writing()
    stand.talk.say(b"y" * 1000, text=True)
    stand.talk.resume_writing()
    assert stand.door.took == 1000


def test_a_goodbye_is_answered_by_the_same_code(stand: Stand):
    stand.hear(CloseConnection(code=4001, reason="enough"))
    assert codes(stand.said()) == [4001]
    assert stand.door.left and stand.transport.ended == "closed" and not stand.talk.busy


@virtual
async def test_a_flood_of_frames_is_heard_a_part_at_a_time(stand: Stand):
    flood = b"".join(stand.client.send(Ping(payload=b"%d" % number)) for number in range(3 * FRAMES + 1))
    stand.talk.data_received(flood)
    heard = stand.said()
    assert len(heard) == FRAMES and not stand.transport.reading, "others come first, and no more is read meanwhile"
    for _ in range(3):
        await asyncio.sleep(PAUSE_S)
        heard += stand.said()
    assert [event.payload for event in heard] == [b"%d" % number for number in range(3 * FRAMES + 1)]
    assert stand.transport.reading
    stand.talk.data_received(flood)
    stand.transport.close()
    await asyncio.sleep(10 * PAUSE_S)
    assert len(stand.said()) == FRAMES, "nobody is there any more"
