"""Contract model: finds the first number of a text, and nothing else, in the shape of @cf/cloudflare/clairic."""

import re


def handle_request(request, context):
    asked = request.body.json
    found = re.search(r"\d+(\.\d+)?", asked["state"])
    answers = {name: float(found[0]) if found and field["type"] == "number" else None for name, field in asked["fields"].items()}
    return {"answers": answers, "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}
