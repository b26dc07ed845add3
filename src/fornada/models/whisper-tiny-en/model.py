"""Speech to text with Whisper tiny.en, as Workers AI answers it: text, words, segments, WebVTT."""

import os

import faster_whisper
from sound import samples

import fornada_sdk
from fornada_sdk import BadRequest

ENGLISH = ("en", "english")
SWITCHES = ("vad_filter", "condition_on_previous_text")
THRESHOLDS = ("no_speech_threshold", "compression_ratio_threshold", "log_prob_threshold", "hallucination_silence_threshold")
TEXTS = ("initial_prompt", "prefix")
LONGEST_TEXT = 1000
MOST_BEAMS = 10


class Model(fornada_sdk.Model):
    def load(self, context):
        # The library wants its files side by side; the artifacts lie wherever the node keeps them.
        folder = context.scratch / "whisper"
        folder.mkdir(exist_ok=True)
        for name, path in context.artifacts.items():
            if not (folder / name).exists():
                (folder / name).symlink_to(path)
        threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
        self.whisper = faster_whisper.WhisperModel(
            str(folder), device="cpu", compute_type="int8", cpu_threads=threads, local_files_only=True
        )

    def run(self, request, context):
        given = request.body.json if request.body.fields is not None or request.body.type == "application/json" else {}
        options = read(given)
        audio = samples(request.file("audio"))
        segments, info = self.whisper.transcribe(audio, language="en", word_timestamps=True, **options)
        found = []
        for segment in segments:  # each step of this reads up to 30 s of sound
            if context.cancelled:
                return None
            found.append(segment)
        context.usage["audio_seconds"] = round(float(info.duration), 3)
        return answer(found, info)


def read(given):
    """Options of a request's JSON as the library calls them. Raises BadRequest."""
    if not isinstance(given, dict):
        raise BadRequest('the input must be sound, or an object with "audio"')
    given = {name: value for name, value in given.items() if value is not None}
    for name in ("source_lang", "target_lang", "language"):
        value = str(given.get(name, "en")).lower()
        if value not in ENGLISH and not value.startswith("en-"):
            raise BadRequest(f'"{name}" must be "en": this model knows English alone')
    if given.get("task", "transcribe") != "transcribe":
        raise BadRequest('"task" must be "transcribe": this model knows English alone')
    options = {}
    for name in SWITCHES:
        if name in given:
            options[name] = typed(name, given[name], bool, "true or false")
    for name in THRESHOLDS:
        if name in given:
            options[name] = float(typed(name, given[name], (int, float), "a number"))
    for name in TEXTS:
        if given.get(name):
            options[name] = typed(name, given[name], str, "a text")[:LONGEST_TEXT]
    if "beam_size" in given:
        beams = typed("beam_size", given["beam_size"], int, "a whole number")
        if not 1 <= beams <= MOST_BEAMS:
            raise BadRequest(f'"beam_size" must be from 1 to {MOST_BEAMS}')
        options["beam_size"] = beams
    return options


def typed(name, value, kind, words):
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise BadRequest(f'"{name}" must be {words}')
    return value


def answer(segments, info):
    words = [word for segment in segments for word in segment.words or []]
    return {
        "text": "".join(segment.text for segment in segments).strip(),
        "word_count": len(words),
        "words": [shown(word) for word in words],
        "segments": [
            {
                **span(segment),
                "text": segment.text.strip(),
                "temperature": segment.temperature,
                "avg_logprob": round(float(segment.avg_logprob), 4),
                "compression_ratio": round(float(segment.compression_ratio), 4),
                "no_speech_prob": round(float(segment.no_speech_prob), 6),
                "words": [shown(word) for word in segment.words or []],
            }
            for segment in segments
        ],
        "vtt": "\n\n".join(["WEBVTT", *(cue(segment) for segment in segments)]),
        "transcription_info": {
            "language": info.language,
            "language_probability": info.language_probability,
            "duration": round(float(info.duration), 3),
            "duration_after_vad": round(float(info.duration_after_vad), 3),
        },
    }


def span(timed):
    return {"start": round(float(timed.start), 3), "end": round(float(timed.end), 3)}


def shown(word):
    return {"word": word.word.strip(), **span(word)}


def cue(segment):
    return f"{clock(segment.start)} --> {clock(segment.end)}\n{segment.text.strip()}"


def clock(seconds):
    """WebVTT's time: minutes always, hours where there are any."""
    milliseconds = round(float(seconds) * 1000)
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{minutes:02}:{rest // 1000:02}.{rest % 1000:03}"
    return f"{hours:02}:{text}" if hours else text
