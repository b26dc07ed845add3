"""WAV files as numbers, at the rate that the network was trained with."""

import io
import wave
from math import gcd

import numpy as np

from fornada_sdk import BadRequest

RATE = 16000
ACCEPTED = "WAV with whole numbers of 8, 16, 24 or 32 bits a sample (PCM) is accepted"
LEAST_RATE, TOP_RATE = 1000, 400_000
ZEROS = 16
"""Zero crossings of the filter on each side: the more, the steeper its edge."""
PASSED = 0.95
"""Share of the lower of the two half rates that goes through: the filter's edge lies below it."""
PIECE = 16384
"""Samples made at once, which bounds the memory."""


def wav(raw):
    """(samples in -1..1 as float32, channels mixed to one; samples a second). Raises BadRequest."""
    if not raw:
        raise BadRequest(f"the recording is empty; {ACCEPTED}")
    try:
        with wave.open(io.BytesIO(_plain(raw))) as file:
            channels, width, rate = file.getnchannels(), file.getsampwidth(), file.getframerate()
            data = file.readframes(file.getnframes())
    except (wave.Error, EOFError, ValueError, RuntimeError) as error:
        raise BadRequest(f"the recording can't be read ({error or 'it ends too early'}); {ACCEPTED}") from None
    if width not in (1, 2, 3, 4) or not channels or not LEAST_RATE <= rate <= TOP_RATE:
        raise BadRequest(f"{channels} channels of {8 * width} bits at {rate} Hz are no recording; {ACCEPTED}")
    samples = _numbers(data[: len(data) // (channels * width) * channels * width], width)
    if not len(samples):
        raise BadRequest("the recording holds no samples")
    return samples.reshape(-1, channels).mean(axis=1, dtype=np.float32), rate


def _plain(raw):
    """The same file with its numbers declared as older readers know it: 24 bits and many channels often come as "extensible"."""
    extensible = raw[12:16] == b"fmt " and raw[20:22] == b"\xfe\xff" and raw[44:46] == b"\x01\x00"
    return raw[:20] + b"\x01\x00" + raw[22:] if extensible else raw


def _numbers(data, width):
    """Little-endian integers as float32 in -1..1. Samples of 8 bits have no sign."""
    if width == 1:
        return (np.frombuffer(data, np.uint8).astype(np.float32) - 128) / 128
    if width == 3:
        wide = np.zeros((len(data) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        return wide.view("<i4")[:, 0].astype(np.float32) / 2**31
    return np.frombuffer(data, f"<i{width}").astype(np.float32) / 2 ** (8 * width - 1)


def resampled(samples, rate):
    """The same sound at RATE: a windowed sinc filter, one set of weights for each place between two samples that occurs."""
    if rate == RATE:
        return samples
    shared = gcd(rate, RATE)
    up, down = RATE // shared, rate // shared
    cutoff = PASSED * min(1.0, RATE / rate)  # of the half rate of `samples`
    reach = int(np.ceil(ZEROS / cutoff))
    count = -(-len(samples) * up // down)
    padded = np.pad(samples, (reach, reach + 1))
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1)
    weights = _weights(up, cutoff, reach)
    made = np.empty(count, np.float32)
    for start in range(0, count, PIECE):
        places = np.arange(start, min(start + PIECE, count), dtype=np.int64) * down
        made[start : start + len(places)] = np.einsum("ij,ij->i", windows[places // up], weights[places % up])
    return made


def _weights(up, cutoff, reach):
    """[up, 2 * reach + 1]: for a place k / up after a sample, the weights of its neighbours; each row's sum is 1."""
    distance = np.arange(-reach, reach + 1)[np.newaxis] - (np.arange(up) / up)[:, np.newaxis]
    window = np.where(np.abs(distance) < reach, 0.5 + 0.5 * np.cos(np.pi * distance / reach), 0)
    weights = np.sinc(distance * cutoff) * window
    return (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
