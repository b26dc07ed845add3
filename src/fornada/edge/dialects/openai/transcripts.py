"""What a speech recognition model answers, in the five forms of OpenAI's transcriptions. Pure.

    {"text", "words", "segments", "vtt", "transcription_info"}   →   json | text | srt | vtt | verbose_json

Only `text` must be there. Where there are no segments the words make one, and where there are no words either the whole does.
"""

from typing import Any

import msgspec

FORMATS = ("json", "text", "srt", "vtt", "verbose_json")
PLAIN = ("text", "srt", "vtt")
"""Formats that are no JSON."""


class Word(msgspec.Struct, frozen=True):
    """A word, in seconds from the beginning."""

    word: str
    start: float = 0.0
    end: float = 0.0


class Segment(msgspec.Struct, frozen=True):
    """A piece of speech."""

    start: float
    end: float
    text: str
    temperature: float = 0.0
    avg_logprob: float = 0.0
    compression_ratio: float = 0.0
    no_speech_prob: float = 0.0


class Info(msgspec.Struct, frozen=True):
    """Of the whole recording."""

    language: str | None = None
    duration: float | None = None


class Transcript(msgspec.Struct, frozen=True):
    """What the model answered."""

    text: str
    words: list[Word] = []
    segments: list[Segment] = []
    vtt: str | None = None
    transcription_info: Info = Info()


def read_transcript(body: bytes | memoryview) -> Transcript:
    """Raises msgspec.MsgspecError for an answer that has not this shape."""
    return msgspec.json.decode(body, type=Transcript)


def shown(
    transcript: Transcript,
    format: str,
    *,
    language: str,
    words: bool,
    segments: bool,
    seconds: float | None,
    task: str = "transcribe",
) -> bytes:
    """A body in one of FORMATS. `words` and `segments` are what verbose_json shows; `seconds` is the recording's length where it is known."""
    match format:
        case "text":
            return transcript.text.encode() + b"\n"
        case "srt":
            return _srt(transcript, seconds).encode()
        case "vtt":
            return (transcript.vtt or _vtt(transcript, seconds)).rstrip().encode() + b"\n"
        case "verbose_json":
            return msgspec.json.encode({"task": task, **_verbose(transcript, language, words, segments, seconds)})
        case _:
            return msgspec.json.encode({"text": transcript.text, **_usage(seconds)})


def _verbose(transcript: Transcript, language: str, words: bool, segments: bool, seconds: float | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "language": transcript.transcription_info.language or language or "en",
        "duration": seconds if seconds is not None else max((each.end for each in _segments(transcript, None)), default=0.0),
        "text": transcript.text,
    }
    if words:
        found["words"] = transcript.words
    if segments:
        found["segments"] = [
            {"id": number, "seek": 0, "tokens": [], **msgspec.structs.asdict(segment)}
            for number, segment in enumerate(_segments(transcript, seconds))
        ]
    return {**found, **_usage(seconds)}


def _usage(seconds: float | None) -> dict[str, Any]:
    return {} if seconds is None else {"usage": {"type": "duration", "seconds": round(seconds)}}


def _segments(transcript: Transcript, seconds: float | None) -> list[Segment]:
    if transcript.segments:
        return transcript.segments
    if not transcript.text:
        return []
    words = transcript.words
    return [Segment(words[0].start if words else 0.0, words[-1].end if words else seconds or 0.0, transcript.text)]


def _srt(transcript: Transcript, seconds: float | None) -> str:
    cues = [
        f"{number}\n{_clock(each.start, ',')} --> {_clock(each.end, ',')}\n{each.text.strip()}\n"
        for number, each in enumerate(_segments(transcript, seconds), 1)
    ]
    return "\n".join(cues)


def _vtt(transcript: Transcript, seconds: float | None) -> str:
    cues = [f"{_clock(each.start, '.')} --> {_clock(each.end, '.')}\n{each.text.strip()}" for each in _segments(transcript, seconds)]
    return "\n\n".join(["WEBVTT", *cues])


def _clock(seconds: float, mark: str) -> str:
    milliseconds = round(max(0.0, seconds) * 1000)
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{rest // 1000:02}{mark}{rest % 1000:03}"
