"""The smallest model: no model.toml, one function, answers whatever it is asked."""


def handle_request(request, context):
    return {"echo": request.body.json}
