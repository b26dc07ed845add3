"""Contract model: says how many bytes a picture has, by the four tasks of its kind, in the shape of @cf/moondream/moondream3.1-9B-A2B."""


def handle_request(request, context):
    asked = request.body.json
    said = f"{len(request.file('image'))} bytes"
    box = {"x_min": 0.0, "y_min": 0.0, "x_max": 1.0, "y_max": 1.0}
    answers = {
        "query": {"answer": said},
        "caption": {"caption": said},
        "point": {"points": [{"x": 0.5, "y": 0.5}]},
        "detect": {"objects": [box]},
    }
    metrics = {"input_tokens": 1, "output_tokens": 2, "prefill_time_ms": 0.0, "decode_time_ms": 0.0}
    return {**answers[asked.get("task") or "query"], "finish_reason": "stop", "metrics": metrics}
