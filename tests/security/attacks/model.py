"""The model that attacks: it hands what the request tells it to the attempt that was bundled with it.

{"shared": anything} is answered with anything: a long one makes the node share memory with the model.
"""

from importlib import import_module
from typing import Any

from fornada_sdk import Context, Request


def handle_request(request: Request, context: Context) -> Any:
    if "shared" in (told := request.body.json):
        return told["shared"]
    attempt = import_module(f"tests.security.attacks.attempts.{context.settings['attempt']}").attempt
    return attempt(context, told)
