"""Contract model: takes recordings of an even number of bytes for complete turns, in the shape of @cf/pipecat-ai/smart-turn-v2."""


def handle_request(request, context):
    complete = len(request.file("audio")) % 2 == 0
    return {"is_complete": complete, "probability": 0.9 if complete else 0.1}
