"""The model that attacks: it hands what the request tells it to the attempt that was bundled with it."""

from importlib import import_module
from typing import Any

from fornada_sdk import Context, Request


def handle_request(request: Request, context: Context) -> Any:
    attempt = import_module(f"tests.security.attacks.attempts.{context.settings['attempt']}").attempt
    return attempt(context, request.body.json)
