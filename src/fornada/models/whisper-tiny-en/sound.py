"""From whatever container sound came in to 16,000 samples a second, one channel. Runs in the sandbox."""

import io
import wave

import av
import numpy as np

from fornada_sdk import BadRequest

RATE = 16000
MOST_SECONDS = 30 * 60
"""A small file may claim to last for days; as samples half an hour takes 115 MB."""


def samples(data):
    """float32 from -1 to 1. Raises BadRequest for what is no sound, has none, or is too long."""
    if not data:
        raise BadRequest("the sound is empty")
    found = plain_wave(data)
    if found is None:
        found = decoded(data)
    if not found.size:
        raise BadRequest("there is no sound in it")
    if found.size > MOST_SECONDS * RATE:
        raise too_long()
    return found


def plain_wave(data):
    """Samples of a WAV file that needs no conversion; None for all else."""
    if data[:4] != b"RIFF":
        return None
    try:
        with wave.open(io.BytesIO(data)) as file:
            if file.getsampwidth() != 2 or file.getframerate() != RATE:
                return None
            channels = file.getnchannels()
            if file.getnframes() > (MOST_SECONDS + 1) * RATE:
                raise too_long()
            frames = np.frombuffer(file.readframes(file.getnframes()), "<i2", count=-1)
    except (wave.Error, EOFError, ValueError, ZeroDivisionError):
        return None
    frames = frames[: frames.size // channels * channels].reshape(-1, channels)
    return frames.mean(axis=1, dtype=np.float32) / np.float32(32768)


def decoded(data):
    """Samples of any container that FFmpeg knows and `container_of` lets through."""
    pieces, count = [], 0
    try:
        with av.open(io.BytesIO(data), mode="r", format=container_of(data), metadata_errors="ignore") as container:
            if not container.streams.audio:
                raise BadRequest("there is no sound in it")
            resampler = av.AudioResampler(format="fltp", layout="mono", rate=RATE)
            for frame in container.decode(audio=0):
                frame.pts = None
                for piece in resampler.resample(frame):
                    pieces.append(piece.to_ndarray()[0])
                    count += pieces[-1].size
                if count > MOST_SECONDS * RATE:
                    raise too_long()
            pieces += [piece.to_ndarray()[0] for piece in resampler.resample(None)]
    except (av.error.FFmpegError, ValueError) as error:
        if not pieces:
            raise BadRequest(f"it can't be read as sound: {getattr(error, 'strerror', None) or error}") from None
        # Cut off in the middle: what came before it is there.
    return np.concatenate(pieces).astype(np.float32) if pieces else np.zeros(0, np.float32)


def container_of(data):
    """FFmpeg's name of the container. It isn't left to guess: it also knows play lists, which name other files."""
    start = data[:12]
    for magic, name in (
        (b"RIFF", "wav"),
        (b"fLaC", "flac"),
        (b"OggS", "ogg"),
        (b"\x1aE\xdf\xa3", "matroska"),
        (b"FORM", "aiff"),
        (b"caff", "caf"),
        (b"#!AMR", "amr"),
        (b".snd", "au"),
        (b"ID3", "mp3"),
    ):
        if start.startswith(magic):
            return name
    if start[4:8] == b"ftyp":
        return "mov"
    if len(start) > 1 and start[0] == 0xFF and start[1] & 0xF6 == 0xF0:
        return "aac"
    if len(start) > 1 and start[0] == 0xFF and start[1] & 0xE0 == 0xE0:
        return "mp3"
    raise BadRequest("it is no sound in a known container: WAV, FLAC, Ogg, MP3, AAC, MP4, WebM, AIFF, CAF, AMR or AU")


def too_long():
    return BadRequest(f"the sound lasts longer than {MOST_SECONDS // 60} minutes, which is the most that is read at once")
