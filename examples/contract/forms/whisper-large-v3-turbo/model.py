"""Contract model: says how many bytes it heard, in the shape of @cf/openai/whisper-large-v3-turbo."""


def handle_request(request, context):
    said = f"{len(request.file('audio'))} bytes"
    count, unit = said.split()
    words = [{"word": count, "start": 0.0, "end": 0.5}, {"word": unit, "start": 0.5, "end": 1.0}]
    segment = {
        "start": 0.0,
        "end": 1.0,
        "text": said,
        "temperature": 0.0,
        "avg_logprob": -0.1,
        "compression_ratio": 1.0,
        "no_speech_prob": 0.0,
    }
    return {
        "transcription_info": {"language": "en", "language_probability": 1.0, "duration": 1.0, "duration_after_vad": 1.0},
        "text": said,
        "word_count": 2,
        "segments": [{**segment, "words": words}],
        "vtt": f"WEBVTT\n\n00:00.000 --> 00:01.000\n{said}",
    }
