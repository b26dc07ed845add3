"""`/v1/responses`: generated text as OpenAI's newer API tells it, with conversations that the node remembers.

In: an Exchange that names a text-generation model and gives items; Calls for responses that are kept.
Out: a chat for the InferencePort; responses and their events; KeptResponses for the store.
May import: what `edge.dialects.openai` may.
"""

from fornada.edge.dialects.openai.responses.door import ResponsesDoor

__all__ = ["ResponsesDoor"]
