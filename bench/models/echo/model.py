"""Gives back what it got."""


def handle_request(request, context):
    return {"x": request.body.json["x"]}
