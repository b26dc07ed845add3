"""The OpenAI API under /v1 and /client/v4/accounts/{account}/ai/v1.

In: chats, texts, responses, embeddings, transcriptions, speech and pictures as Exchanges; models, files, batches, kept responses as Calls.
Out: requests for the InferencePort, jobs; OpenAI's objects, without an envelope.
May import: `edge` modules that are not dialects, `telemetry`, `core`.
"""

from fornada.edge.dialects.openai.embeddings import EmbeddingsDoor
from fornada.edge.dialects.openai.images import ImagesDoor
from fornada.edge.dialects.openai.models import routes
from fornada.edge.dialects.openai.responses import ResponsesDoor
from fornada.edge.dialects.openai.speech import SpeechDoor
from fornada.edge.dialects.openai.text import ChatDoor, CompletionsDoor
from fornada.edge.dialects.openai.transcriptions import TranscriptionsDoor, TranslationsDoor

TEXT_DOORS = (ChatDoor, CompletionsDoor)
DOORS = (EmbeddingsDoor, TranscriptionsDoor, TranslationsDoor, SpeechDoor, ImagesDoor)

__all__ = ["DOORS", "TEXT_DOORS", "ChatDoor", "CompletionsDoor", "EmbeddingsDoor", "ResponsesDoor", "TranscriptionsDoor", "routes"]
