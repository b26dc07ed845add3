"""Wishes and answers of the outbound channel, byte for byte."""

import pytest

from fornada_sdk.wire.outbound import ANSWER_MOST, CONNECT_MOST, Answer, Outcome, answer_line, connect_packet, read_answer, read_connect


def test_a_wish_is_one_packet_of_json() -> None:
    packet = b'{"host":"api.example.com","port":443}'
    assert connect_packet("api.example.com", 443) == packet
    assert read_connect(packet) == ("api.example.com", 443)
    with pytest.raises(ValueError):
        connect_packet("a" * CONNECT_MOST, 443)


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (Answer(Outcome.MADE), b"{}\n"),
        (Answer(Outcome.REFUSED, "a:1 is refused"), b'{"outcome": "refused", "message": "a:1 is refused"}\n'),
        (Answer(Outcome.FAILED, "can't"), b'{"outcome": "failed", "message": "can\'t"}\n'),
        (Answer(Outcome.BUSY, "later"), b'{"outcome": "busy", "message": "later"}\n'),
    ],
)
def test_an_answer_is_one_line_of_json(answer: Answer, line: bytes) -> None:
    assert answer_line(answer) == line
    assert read_answer(line) == answer


def test_an_answer_never_grows_beyond_its_bound_nor_over_its_line() -> None:
    line = answer_line(Answer(Outcome.REFUSED, "two\nlines " + "\u00e9" * 5000))
    assert len(line) <= ANSWER_MOST and line.count(b"\n") == 1
    assert read_answer(line).message.startswith("two lines ")


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b'{"outcome": "unheard"}', b'{"outcome": "refused", "message": 1}'])
def test_what_is_no_answer_is_a_value_error(line: bytes) -> None:
    with pytest.raises(ValueError):
        read_answer(line)
