"""JSON Schemas of text generation (WORKERS_AI.md, 5.3 and 7): what `ai/run` takes and gives, and the bodies of /v1.

    ai/run                  TEXT_GENERATION_IN      Workers AI's ranges
      of OpenAI's family    OPENAI_FAMILY_IN        the same, or what a response is made of
    /v1/chat/completions    CHAT_IN                 OpenAI's where they are wider: any seed, `top_k` as vLLM takes it
    /v1/completions         COMPLETION_IN           the same; `logprobs` is a number there

What is refused is refused by these, before a model is loaded for it, and so the published schemas are the ones that are applied.
What depends on the engine (pictures, how large a schema may be) only the engine refuses.
"""

from typing import Any

from fornada.edge.schema_parts import Object, fields, flag, integer, nullable, number, text

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
MOST_TOOLS, MOST_STOPS, MOST_CHOICES, MOST_LOGPROBS = 128, 16, 128, 20

_FUNCTION: Object = {
    "name": text("Its name", minLength=1),
    "description": nullable(text("What it is for")),
    "parameters": nullable({"type": "object", "description": "JSON Schema of its arguments"}),
}
_TOOL: Object = {
    "type": "object",
    "description": "{name, description, parameters}, or OpenAI's {type, function}",
    "properties": {
        **_FUNCTION,
        "type": nullable({"enum": ["function"]}),
        "function": {"type": "object", "properties": _FUNCTION, "required": ["name"]},
    },
    "anyOf": [{"required": ["function"]}, {"required": ["name"]}],
}
_ARGUMENTS: Object = {"type": ["string", "object", "null"], "description": "A JSON text, or the object that it is"}
_MADE_CALL: Object = {
    "type": "object",
    "description": "A call that was made: OpenAI's, or {name, arguments}",
    "properties": {
        "id": {"type": ["string", "null"]},
        "type": nullable({"enum": ["function"]}),
        "function": {"type": "object", "properties": {"name": {"type": "string"}, "arguments": _ARGUMENTS}, "required": ["name"]},
        "name": {"type": "string"},
        "arguments": _ARGUMENTS,
    },
    "anyOf": [{"required": ["function"]}, {"required": ["name"]}],
}
_PART: Object = {
    "type": ["object", "string"],
    "description": '{"type": "text", "text": …}, or {"type": "image_url", "image_url": {"url": "data:image/…;base64,…"}} for models that see',
    "properties": {"type": {"type": "string"}, "text": {"type": ["string", "null"]}, "image_url": {"type": ["object", "string", "null"]}},
    "required": ["type"],
}
MESSAGES: Object = {
    "type": "array",
    "description": "The conversation so far",
    "minItems": 1,
    "items": {
        "type": "object",
        "properties": {
            "role": {"enum": list(ROLES)},
            "content": {"type": ["string", "array", "null"], "items": _PART},
            "name": {"type": ["string", "null"]},
            "tool_calls": {"type": ["array", "null"], "items": _MADE_CALL},
            "tool_call_id": {"type": ["string", "null"], "description": "Which of the calls this is the result of"},
        },
        "required": ["role"],
    },
}
_PROMPT = text("Text to go on from", minLength=1)
_LOGPROBS = flag("Whether the answer has the log probabilities of its tokens")
_LOGPROBS_OF_TEXT = integer("How many alternatives of each token the answer has", minimum=0, maximum=MOST_LOGPROBS)
_SAMPLING: Object = {
    "stream": flag("Send the answer piece by piece, then data: [DONE]"),
    "stream_options": fields("About the stream", {"include_usage": flag("The last event tells the usage")}),
    "max_tokens": integer("Most tokens of the answer", minimum=1, default=256),
    "max_completion_tokens": integer("The same, under its newer name", minimum=1),
    "temperature": number("Randomness", minimum=0, maximum=5, default=0.6),
    "top_p": number("Share of probability to choose from", minimum=0, maximum=2),
    "min_p": number("Least probability of a token, as a share of the likeliest one's", minimum=0, maximum=1),
    "repetition_penalty": number("Against repetition", minimum=0, maximum=2),
    "frequency_penalty": number("Against frequent words", minimum=-2, maximum=2),
    "presence_penalty": number("Against words that were there", minimum=-2, maximum=2),
    "stop": {
        "type": ["string", "array"],
        "description": "A text, or some: the answer ends before them",
        "items": {"type": "string"},
        "maxItems": MOST_STOPS,
    },
    "logit_bias": {"type": "object", "description": "Number of a token -> what is added to its weight, from -100 to 100"},
    "n": integer("Number of answers", minimum=1, maximum=MOST_CHOICES),
    "response_format": {
        "type": "object",
        "description": "JSON mode: the answer is a JSON object, or what a schema says, bare or in OpenAI's envelope {name, schema, strict}",
        "properties": {
            "type": {"enum": ["text", "json_object", "json_schema"]},
            "json_schema": {"type": ["object", "null"]},
        },
        "required": ["type"],
        "if": {"properties": {"type": {"const": "json_schema"}}},
        "then": {"required": ["json_schema"], "properties": {"json_schema": {"type": "object"}}},
    },
    "guided_json": {"type": "object", "description": "A JSON Schema for the answer, as vLLM names it"},
    "lora": text("Fine-tune to apply, by id or name (gguf)", minLength=1),
}
_CONVERSATION: Object = {
    "tools": {"type": "array", "description": "Functions that the model may call", "maxItems": MOST_TOOLS, "items": _TOOL},
    "tool_choice": {
        "description": "auto, none, required, or the one function that must be called: the last two are enforced",
        "anyOf": [
            {"enum": ["auto", "none", "required"]},
            {
                "type": "object",
                "properties": {"type": nullable({"enum": ["function"]}), "function": {"type": "object", "required": ["name"]}},
                "anyOf": [{"required": ["function"]}, {"required": ["name"]}],
            },
        ],
    },
    "parallel_tool_calls": flag("Whether one answer may call several functions"),
    "functions": {
        "type": "array",
        "description": "{name, code} for embedded function calling: taken and not used",
        "items": {"type": "object"},
    },
    "top_logprobs": integer("With `logprobs`: how many alternatives of each token", minimum=0, maximum=MOST_LOGPROBS),
    "reasoning_effort": text("How long models that can think may: low, medium, high, none; others pass over it"),
    "chat_template_kwargs": {"type": "object", "description": "More for the model's chat template, such as enable_thinking"},
}
_WORKERS_AI: Object = {
    "top_k": integer("Number of tokens to choose from", minimum=1, maximum=50),
    "seed": integer("The same seed gives the same answer", minimum=1, maximum=9_999_999_999),
}
_OPENAI: Object = {
    "top_k": integer("Number of tokens to choose from; 0 and -1: all", minimum=-1),
    "seed": integer("The same seed gives the same answer"),
}
_RAW: Object = {"description": "No chat template", "anyOf": [{"type": "boolean"}, {"enum": ["true", "false"]}]}

TEXT_GENERATION_IN: Object = {
    **fields(
        "A prompt or a conversation",
        {
            "prompt": _PROMPT,
            "messages": MESSAGES,
            "raw": _RAW,
            **_SAMPLING,
            **_WORKERS_AI,
            **_CONVERSATION,
            "logprobs": {"description": _LOGPROBS["description"], "anyOf": [{"type": "boolean"}, _LOGPROBS_OF_TEXT]},
            "image": {
                "type": ["string", "array"],
                "description": "A picture for models that see: bytes as numbers, base64 or a data URI",
                "items": {"type": "integer", "minimum": 0, "maximum": 255},
            },
        },
    ),
    "oneOf": [{"required": ["prompt"]}, {"required": ["messages"]}],
}
OPENAI_FAMILY_IN: Object = {
    **TEXT_GENERATION_IN,
    "description": "A prompt, a conversation, or the input of a response",
    "properties": {
        **TEXT_GENERATION_IN["properties"],
        "input": {"type": ["string", "array"], "description": "What /v1/responses takes, with its other fields: the answer is a response"},
        "instructions": nullable(text("With `input`: a system message")),
    },
    "oneOf": [*TEXT_GENERATION_IN["oneOf"], {"required": ["input"]}],
}
CHAT_IN: Object = fields(
    "A conversation", {"messages": MESSAGES, **_SAMPLING, **_OPENAI, **_CONVERSATION, "logprobs": _LOGPROBS}, required=("messages",)
)
COMPLETION_IN: Object = fields(
    "A text to go on from",
    {
        "prompt": _PROMPT,
        **_SAMPLING,
        **_OPENAI,
        "logprobs": _LOGPROBS_OF_TEXT,
        "echo": flag("Whether the answer begins with the prompt"),
        "best_of": integer("How many answers are made for the best ones: no more than `n`", minimum=1, maximum=MOST_CHOICES),
    },
    required=("prompt",),
)


def body(schema: Object, **properties: Any) -> Object:
    """One of the two as a request's body: with the model, and what is the platform's."""
    own: Object = {
        "model": text("Name or alias of a text-generation model"),
        "options": fields("For the platform", {"rejectIfBusy": flag("Refuse at once where there is no room")}),
    }
    own["options"] = nullable(own["options"])
    return {
        **schema,
        "properties": {"model": own["model"], **schema["properties"], "options": own["options"], **properties},
        "required": ["model", *schema["required"]],
    }


USAGE: Object = {
    "type": "object",
    "properties": {
        **{name: {"type": "integer"} for name in ("prompt_tokens", "completion_tokens", "total_tokens")},
        "prompt_tokens_details": {"type": ["object", "null"], "properties": {"cached_tokens": {"type": "integer"}}},
    },
}
_CALLS: Object = {
    "type": "array",
    "description": "Functions to call; left out where there are none",
    "items": {"type": "object", "properties": {"name": {"type": "string"}, "arguments": {}}},
}
TEXT_GENERATION_OUT = fields(
    "The text",
    {"response": {"description": "A text; in JSON mode the value that it is"}, "tool_calls": _CALLS, "usage": USAGE},
)
CHAT_OUT: Object = {
    "type": "object",
    "description": "A chat.completion, as OpenAI writes it; a text_completion for a prompt, a response for an input",
    "properties": {
        "id": {"type": "string"},
        "object": {"enum": ["chat.completion", "text_completion", "response"]},
        "model": {"type": "string"},
        "choices": {"type": "array", "items": {"type": "object"}},
        "output": {"type": "array", "items": {"type": "object"}},
        "usage": {"type": "object"},
    },
    "required": ["object"],
}
