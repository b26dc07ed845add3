"""The OpenAI API under /v1 and /client/v4/accounts/{account}/ai/v1.

In: embeddings, chats, completions, responses and transcriptions as Exchanges; lists of models, files, batches and kept responses as Calls.
Out: requests for the InferencePort, jobs; OpenAI's objects, without an envelope.
May import: `edge` modules that are not dialects, `telemetry`, `core`.
"""

from fornada.edge.dialects.openai.embeddings import EmbeddingsDoor
from fornada.edge.dialects.openai.models import routes
from fornada.edge.dialects.openai.responses import ResponsesDoor
from fornada.edge.dialects.openai.text import ChatDoor, CompletionsDoor
from fornada.edge.dialects.openai.transcriptions import TranscriptionsDoor

DOORS = (ChatDoor, EmbeddingsDoor, CompletionsDoor, TranscriptionsDoor)

__all__ = ["DOORS", "ChatDoor", "CompletionsDoor", "EmbeddingsDoor", "ResponsesDoor", "TranscriptionsDoor", "routes"]
