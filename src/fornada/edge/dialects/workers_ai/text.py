"""Generated text as `ai/run` answers it (WORKERS_AI.md, 5.3), in the family that the model's author chose.

[settings] output_family     result                                  events with "stream": true
"workers-ai", or nothing     {"response", "tool_calls", "usage"}     {"response", …}
"openai"                     a chat.completion                       chat.completion.chunk
  the same, for a prompt     a text_completion                       text_completion
  the same, for an input     a response (run.Responds)               its named events
"""

from fornada.core.requests import AnswerHead, Sink
from fornada.edge.calls import Exchange
from fornada.edge.dialects.workers_ai.answer import CLOSE, CLOSE_NONFINITE, OPEN, RunSink, header_lines
from fornada.edge.dialects.workers_ai.body import Input
from fornada.edge.json_mode import JsonMode
from fornada.edge.text_generation import ChatStream, Identity, NativeStream, TextStream, chat_completion, native_result, text_completion
from fornada.edge.text_sink import Form, TextSink
from fornada.edge.validation import Contract


def text_sink(exchange: Exchange, contract: Contract, identity: Identity, given: Input) -> TextSink:
    """The Sink of one `ai/run` of a model that generates text."""
    form: Form
    if not contract.openai_family:
        form = NativeForm(identity, given.stream, given.json_mode)
    elif given.prompted:
        form = OpenaiTextForm(identity, given.stream)
    else:
        form = OpenaiForm(identity, given.stream, given.json_mode)
    return TextSink(exchange, form, stream=given.stream)


class NativeForm:
    """{"response": …}, in the envelope."""

    __slots__ = ("_json_mode", "_stream", "identity")

    def __init__(self, identity: Identity, stream: bool, json_mode: JsonMode | None) -> None:
        self.identity = identity
        self._stream = stream
        self._json_mode = json_mode

    def whole(self, body: bytes | memoryview, head: AnswerHead) -> tuple[bytes, ...]:
        result = native_result(body, json_mode=self._json_mode, usage=head.usage)
        return OPEN, result, CLOSE_NONFINITE if head.nonfinite else CLOSE

    def events(self) -> NativeStream:
        return NativeStream()

    def lines(self, head: AnswerHead) -> bytes:
        return header_lines(head)

    def other(self, exchange: Exchange) -> Sink:
        return RunSink(exchange, self._stream)


class OpenaiForm:
    """A chat.completion, in the envelope."""

    __slots__ = ("_json_mode", "_stream", "identity")

    def __init__(self, identity: Identity, stream: bool, json_mode: JsonMode | None = None) -> None:
        self.identity = identity
        self._stream = stream
        self._json_mode = json_mode

    def whole(self, body: bytes | memoryview, head: AnswerHead) -> tuple[bytes, ...]:
        result = chat_completion(body, self.identity, usage=head.usage, json_mode=self._json_mode)
        return OPEN, result, CLOSE_NONFINITE if head.nonfinite else CLOSE

    def events(self) -> ChatStream:
        return ChatStream(self.identity, include_usage=True)

    def lines(self, head: AnswerHead) -> bytes:
        return header_lines(head)

    def other(self, exchange: Exchange) -> Sink:
        return RunSink(exchange, self._stream)


class OpenaiTextForm(OpenaiForm):
    """A text_completion, in the envelope."""

    __slots__ = ()

    def whole(self, body: bytes | memoryview, head: AnswerHead) -> tuple[bytes, ...]:
        return OPEN, text_completion(body, self.identity, usage=head.usage), CLOSE_NONFINITE if head.nonfinite else CLOSE

    def events(self) -> TextStream:
        return TextStream(self.identity, include_usage=True)
