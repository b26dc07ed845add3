"""y = x / 2 + 2. Callers of the Open Inference Protocol and of TensorFlow Serving send tensors; everybody else sends {"x": [...]}."""

from fornada_sdk import BadRequest


def handle_request(request, context):
    x = request.tensors["x"].flat() if request.tensors else numbers(request.body.json)
    return {"y": [value / 2 + 2 for value in x]}  # for whoever sent tensors it becomes one, as model.toml declares it


def numbers(asked):
    x = asked.get("x") if isinstance(asked, dict) else None
    if not isinstance(x, list) or not all(isinstance(value, (int, float)) for value in x):
        raise BadRequest('send {"x": [numbers]}')
    return x
