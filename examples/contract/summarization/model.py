"""Contract model: nothing is understood. The first words come back, marked."""

DEFAULT_WORDS = 20


def handle_request(request, context):
    asked = request.body.json
    words = asked["input_text"].split()
    most = min(asked.get("max_length") or DEFAULT_WORDS, DEFAULT_WORDS)
    return {"summary": f"[contract model, the first words] {' '.join(words[:most])}"}
