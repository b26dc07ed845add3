"""`lora` in a request for text: the account's fine-tune becomes what the runner knows it by (WORKERS_AI.md, 9).

Callers name a fine-tune with a text. The runner takes nothing but {"finetune": "<id>"}, which no schema lets a caller write: so an
adapter of another account can't be had by its id, at whichever door.
"""

import msgspec

from fornada.core.errors import BadRequest, LoraUnsupported
from fornada.core.finetunes import FinetunesPort, applies_adapters
from fornada.core.names import AccountId
from fornada.core.ports import Resolved
from fornada.edge.json_bodies import encode, fields_of, value_of


class Tuner:
    """Looks fine-tunes up for the doors."""

    def __init__(self, finetunes: FinetunesPort) -> None:
        self._finetunes = finetunes

    def tuned(self, body: bytes, resolved: Resolved, account: AccountId) -> bytes:
        """A body with `lora`, for the runner. Raises LoraUnsupported, UnknownFinetune, FinetuneIncomplete, BadRequest."""
        model = resolved.entry.name
        if not applies_adapters(resolved.spec):
            raise LoraUnsupported(f"The model {model} does not support LoRa inference")
        fields = fields_of(body)
        found = self._finetunes.find(account, str(value_of(fields["lora"])))
        if found.model != model:
            raise BadRequest(f"'/lora': the fine-tune '{found.name}' is one of {found.model}, and not of {model}")
        fields["lora"] = msgspec.Raw(msgspec.json.encode({"finetune": found.id}))
        return encode(fields)
