"""Contract model: hears when somebody speaks, by loudness alone, and tells turns in the events of real-time recognition (Deepgram's flux).

Bytes are sound, 16-bit samples; the text {"type": "CloseStream"} ends it.
"""

import array
import json

from fornada_sdk import BadRequest

LOUD = 500
"""Of a sample's 32,768: from there on somebody speaks."""
QUIET_MS = 500
"""Without a word, and a turn is over; `eot_timeout_ms` says otherwise."""
NEAR_S = 0.001


class Turns:
    """Where the conversation stands."""

    def __init__(self, request_id, rate, quiet_s):
        self.request_id, self.rate, self.quiet_s = request_id, rate, quiet_s
        self.sequence = self.turn = 0
        self.heard_s = self.began_s = self.loud_s = 0.0
        self.speaking = False

    def event(self, name):
        length_s = self.heard_s - self.began_s
        event = {
            "request_id": self.request_id,
            "sequence_id": self.sequence,
            "event": name,
            "turn_index": self.turn,
            "audio_window_start": round(self.began_s, 3),
            "audio_window_end": round(self.heard_s, 3),
            "transcript": f"[contract model, not understood] {length_s:.1f} s of sound" if self.speaking else "",
            "words": [],
            "end_of_turn_confidence": 1.0 if name == "EndOfTurn" else 0.0,
        }
        self.sequence += 1
        return event

    def hear(self, samples):
        """The event that this piece of sound comes to."""
        before_s, self.heard_s = self.heard_s, self.heard_s + len(samples) / self.rate
        loud = max((abs(sample) for sample in samples), default=0) >= LOUD
        if loud:
            self.loud_s = self.heard_s
            if not self.speaking:
                self.speaking, self.began_s = True, before_s
                return self.event("StartOfTurn")
        elif self.speaking and self.heard_s - self.loud_s > self.quiet_s - NEAR_S:
            over = self.event("EndOfTurn")
            self.speaking, self.began_s, self.turn = False, self.heard_s, self.turn + 1
            return over
        return self.event("Update")


def handle_request(request, context):
    given = request.body.json
    if given.get("encoding", "linear16") != "linear16":
        raise BadRequest('"encoding" must be linear16')
    try:
        rate = int(given.get("sample_rate", 16000))
        quiet_s = int(given.get("eot_timeout_ms", QUIET_MS)) / 1000
    except (TypeError, ValueError):
        raise BadRequest('"sample_rate" and "eot_timeout_ms" must be whole numbers') from None
    if not 8000 <= rate <= 48000:
        raise BadRequest('"sample_rate" must be from 8000 to 48000')
    turns = Turns(context.request_id, rate, quiet_s)
    for message in request.messages:
        if isinstance(message, str):
            if "CloseStream" in message and json.loads(message).get("type") == "CloseStream":
                return
            continue
        samples = array.array("h")
        samples.frombytes(message[: len(message) // 2 * 2])
        yield turns.hear(samples)
