"""The gguf engine without a library: what it asks of llama.cpp, and what it makes of the chunks that come back."""

import json
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fornada_sdk.api import BadRequest
from fornada_sdk.api_context import Context
from fornada_sdk.runner.engines import LoadError
from fornada_sdk.runner.engines.gguf import DEFAULT_CONTEXT, context_of
from fornada_sdk.runner.engines.gguf_answer import Answer, collected, streamed
from fornada_sdk.runner.engines.gguf_header import Header, read_header, read_shapes
from fornada_sdk.runner.engines.gguf_request import read_request
from fornada_sdk.runner.engines.gguf_weights import Lent

PLAIN = Header("llama", 2048, "{{ messages }}")
KNOWS_TOOLS = Header("llama", 2048, "{% if tools %}{{ tools }}{% endif %}")
HELLO = [{"role": "user", "content": "Hello"}]
TOOL = {
    "name": "f",
    "description": "does",
    "parameters": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {}}},
}
CALL = '{"name": "f", "arguments": {"a": 1}}'


class Scripted:
    """A library that says what it was told to say, and remembers what it was asked."""

    def __init__(self, *script: dict[str, Any]) -> None:
        self.script = script
        self.asked: list[dict[str, Any]] = []

    def chunks(self, body: dict[str, Any], *, chat: bool, cancelled: Callable[[], bool]) -> Iterator[dict[str, Any]]:
        self.asked.append(body)
        for chunk in self.script:
            if cancelled():
                return
            yield chunk


class Lending:
    """Weights that lend one library, and no adapters."""

    def __init__(self, library: Scripted) -> None:
        self._library = library

    @contextmanager
    def lend(self, adapter: str, *, cancelled: Callable[[], bool]) -> Iterator[Lent]:
        assert not adapter
        yield Lent(self._library, {})  # type: ignore[arg-type]


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def usage(prompt: int = 5, completion: int = 2) -> dict[str, Any]:
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}}


def whole(library: Scripted, header: Header = PLAIN, **request: Any) -> dict[str, Any]:
    asked = read_request({"messages": HELLO, **request}, header)
    return collected(Answer(asked, "@m", Lending(library), Context.inactive()))  # type: ignore[arg-type]


def pieces(library: Scripted, header: Header = PLAIN, **request: Any) -> list[dict[str, Any]]:
    asked = read_request({"messages": HELLO, **request}, header)
    return list(streamed(Answer(asked, "@m", Lending(library), Context.inactive())))  # type: ignore[arg-type]


def body(header: Header = PLAIN, **request: Any) -> dict[str, Any]:
    (found,) = read_request({"messages": HELLO, **request}, header).bodies
    return found


# ---- what is asked -------------------------------------------------------------------------------------------------------------


def test_only_what_is_known_reaches_the_library() -> None:
    found = body(grammar="root ::= x", id_slot=3, model="/etc/passwd", cache_prompt=False, n_predict=-1, stream=True)
    assert found.keys() == {"max_tokens", "temperature", "repeat_penalty", "stop", "messages", "stream_options"}
    assert found["max_tokens"] == 256 and found["temperature"] == 0.6 and found["repeat_penalty"] == 1.0


def test_names_of_the_contract_become_the_librarys() -> None:
    found = body(repetition_penalty=1.2, top_p=0.9, top_k=5, frequency_penalty=0.1, presence_penalty=0.2, seed=7, max_completion_tokens=9)
    assert (found["repeat_penalty"], found["top_p"], found["top_k"], found["max_tokens"]) == (1.2, 0.9, 5, 9)
    assert found["cache_prompt"] is False  # a seed is to give the same answer again


@pytest.mark.parametrize(
    "format",
    [
        {"type": "json_schema", "json_schema": {"type": "object"}},
        {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}, "strict": True}},
        {"type": "json_object", "schema": {"type": "object"}},
        {"type": "json_object"},
    ],
)
def test_schemas_are_taken_bare_and_in_envelopes(format: Any) -> None:
    assert body(response_format=format)["response_format"]["json_schema"]["schema"] == {"type": "object"}
    (raw,) = read_request({"prompt": "a", "raw": True, "response_format": format}, PLAIN).bodies
    assert raw["json_schema"] == {"type": "object"}


def test_a_schema_with_a_property_named_schema_is_bare() -> None:
    schema = {"type": "object", "properties": {"schema": {"type": "object"}}}
    assert body(response_format={"type": "json_schema", "json_schema": schema})["response_format"]["json_schema"]["schema"] == schema


def test_a_schema_that_would_take_minutes_is_refused_also_as_a_tool() -> None:
    slow = {"enum": [str(number) for number in range(2000)]}
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"items": deep}
    for schema in (slow, deep):
        with pytest.raises(BadRequest, match="too large"):
            body(response_format={"type": "json_schema", "json_schema": schema})
        with pytest.raises(BadRequest, match="too large"):
            body(tools=[{"name": "f", "parameters": schema}])


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "string", "minLength": 3, "maxLength": 2}, "minLength is 3"),
        ({"type": "array", "minItems": 3, "maxItems": 2}, "minItems is 3"),
        ({"type": "integer", "minimum": 5, "maximum": 3}, "minimum is 5"),
        ({"type": "string", "pattern": "^a{5,3}$"}, "pattern"),
        ({"type": "string", "pattern": "^a{ 5 , 3 }$"}, "pattern"),
        ({"type": "string", "pattern": "^(((a{0,50}){0,50}){0,50})$"}, "parts"),
        ({"type": "string", "pattern": "^[(]{40}{40}{40}$"}, "parts"),
        ({"type": "string", "pattern": "^(a|b){3000}"}, "parts"),
        ({"type": "string", "pattern": "^(a|b?){0,300}$"}, "written out"),
        ({"type": "string", "pattern": f"^{'(a*)*' * 50}$"}, "written out"),
        ({"type": "string", "pattern": f"^{'(' * 200}a{')' * 200}$"}, "in each other"),
        ({"type": "string", "pattern": "^a{3," + "9" * 5000 + "}$"}, "pattern"),
        ({"properties": {"a": {"anyOf": [{"type": "null"}, {"minItems": 2, "maxItems": 1}]}}}, "minItems"),
    ],
)
def test_bounds_that_nothing_meets_are_refused_since_the_library_would_count_for_ever(schema: dict[str, Any], why: str) -> None:
    for request in ({"response_format": {"type": "json_schema", "json_schema": schema}}, {"tools": [{"name": "f", "parameters": schema}]}):
        with pytest.raises(BadRequest, match=why):
            body(**request)
    for pattern in ("^a{2,3}$", r"^\d{3}-\d{4}(\.[A-Z]{1,2}){0,5}$", "^[^)({}]{1,500}$", "(", ")", "{", "^a{2,}$", "[", "\\"):
        body(response_format={"type": "json_schema", "json_schema": {"type": "string", "minLength": 2, "maxLength": 2, "pattern": pattern}})


def test_references_are_counted_where_they_stand_since_the_library_writes_them_out() -> None:
    def halving(levels: int) -> dict[str, Any]:
        twice = {f"l{level}": {"anyOf": [{"$ref": f"#/$defs/l{level + 1}"}] * 2} for level in range(levels)}
        return {"$defs": {**twice, f"l{levels}": {"const": 1}}, "$ref": "#/$defs/l0"}

    loop = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "properties": {"x": {"$ref": "#/$defs/a"}}}
    chain = {"$defs": {f"l{level}": {"items": {"$ref": f"#/$defs/l{level + 1}"}} for level in range(450)}, "$ref": "#/$defs/l0"}
    for schema, why in ((halving(40), "written out"), (loop, "leads back"), (chain, "too deep")):
        for request in (
            {"response_format": {"type": "json_schema", "json_schema": schema}},
            {"tools": [{"name": "f", "parameters": schema}]},
        ):
            with pytest.raises(BadRequest, match=why):
                body(**request)
    tree = {"$defs": {"t": {"properties": {"kids": {"items": {"$ref": "#/$defs/t"}}}}}, "anyOf": [{"$ref": "#/$defs/t"}, {"$ref": "#"}]}
    odd = {"prefixItems": [{"$ref": "#/prefixItems/1"}, {"$ref": "#/nowhere/1"}, {"$ref": "https://example.com/a"}, {"$ref": 5}]}
    for schema in (halving(8), tree, odd):
        body(response_format={"type": "json_schema", "json_schema": schema})


def test_a_template_that_knows_tools_gets_them_and_another_is_told_in_words() -> None:
    native = body(KNOWS_TOOLS, tools=[TOOL], tool_choice="required", parallel_tool_calls=False)
    assert native["tools"] == [{"type": "function", "function": TOOL}] and native["tool_choice"] == "required"
    assert native["messages"] == HELLO and native["parallel_tool_calls"] is False
    told = body(tools=[TOOL])
    assert "tools" not in told and told["messages"][0]["role"] == "system" and '"name": "f"' in told["messages"][0]["content"]
    assert told["messages"][1:] == HELLO and "response_format" not in told


def test_a_forced_call_is_held_to_its_schema_whose_definitions_can_be_found() -> None:
    other = {"name": "g"}
    schema = body(tools=[TOOL, other], tool_choice={"type": "function", "function": {"name": "f"}})["response_format"]["json_schema"][
        "schema"
    ]
    assert schema["properties"]["name"] == {"const": "f"} and schema["$defs"] == {"A": {}}
    both = body(tools=[TOOL, other], tool_choice="required")["response_format"]["json_schema"]["schema"]
    assert [each["properties"]["name"]["const"] for each in both["anyOf"]] == ["f", "g"]


def test_earlier_calls_are_plain_messages_for_a_template_that_knows_none() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    conversation = [
        *HELLO,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "9"},
    ]
    plain = body(messages=conversation)["messages"]
    assert plain[1:] == [{"role": "assistant", "content": CALL}, {"role": "user", "content": "Result of f: 9"}]
    kept = body(KNOWS_TOOLS, messages=conversation)["messages"]
    assert kept[1]["tool_calls"] == [call] and kept[2] == {"role": "tool", "content": "9", "tool_call_id": "c"}


def test_effort_and_words_for_the_template_are_passed_on() -> None:
    assert "chat_template_kwargs" not in body()
    assert body(reasoning_effort="low")["chat_template_kwargs"] == {"enable_thinking": True, "reasoning_effort": "low"}
    assert body(reasoning_effort="none")["chat_template_kwargs"] == {"enable_thinking": False}
    assert (
        body(reasoning_effort="high", chat_template_kwargs={"enable_thinking": False})["chat_template_kwargs"]["enable_thinking"] is False
    )
    assert body(top_k=-1)["top_k"] == 0


# ---- what is answered ----------------------------------------------------------------------------------------------------------


def test_a_models_own_calls_are_put_together_from_their_pieces() -> None:
    parts = [
        delta(content=None, role="assistant"),
        delta(tool_calls=[{"index": 0, "id": "c0", "type": "function", "function": {"name": "f", "arguments": ""}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": '{"a":'}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": "1}"}}]),
        delta("tool_calls"),
        usage(),
    ]
    (choice,) = whole(Scripted(*parts), KNOWS_TOOLS, tools=[TOOL])["choices"]
    assert choice["message"]["tool_calls"] == [{"id": "c0", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}]
    assert choice["message"]["content"] is None and choice["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("cut", range(len(CALL)))
def test_a_call_in_the_text_is_found_wherever_it_is_cut(cut: int) -> None:
    library = Scripted(delta(content=CALL[:cut]), delta(content=CALL[cut:]), delta("stop"), usage())
    (choice,) = whole(library, tools=[TOOL])["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "f", "arguments": '{"a": 1}'} and choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None


@pytest.mark.parametrize("text", [f"{CALL}\n{CALL}", f"[{CALL}, {CALL}]", f"<tool_call>{CALL}</tool_call>\n<tool_call>{CALL}</tool_call>"])
def test_one_answer_may_call_several_functions_and_each_call_has_an_id_of_its_own(text: str) -> None:
    parts = [delta(content=character) for character in text] + [delta("stop"), usage()]
    (choice,) = whole(Scripted(*parts), tools=[TOOL])["choices"]
    calls = choice["message"]["tool_calls"]
    assert [call["function"] for call in calls] == [{"name": "f", "arguments": '{"a": 1}'}] * 2 and choice["finish_reason"] == "tool_calls"
    assert len({call["id"] for call in calls}) == 2
    streamed_calls = pieces(Scripted(*parts), tools=[TOOL])[0]["choices"][0]["delta"]["tool_calls"]
    assert [call["index"] for call in streamed_calls] == [0, 1]
    (choice,) = whole(Scripted(*parts), tools=[TOOL], parallel_tool_calls=False)["choices"]
    assert len(choice["message"]["tool_calls"]) == 1


def test_a_call_that_had_to_be_made_and_was_cut_off_is_told_as_far_as_it_came() -> None:
    library = Scripted(delta(content='{"name": "f", "arguments": {"a": "lo'), delta("length"), usage())
    (choice,) = whole(library, tools=[TOOL], tool_choice="required")["choices"]
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a": "lo'} and choice["finish_reason"] == "length"
    (free,) = whole(library, tools=[TOOL])["choices"]
    assert free["message"]["content"].endswith('"lo') and free["finish_reason"] == "length"


@pytest.mark.parametrize(
    "text", ["Hello {", '{"name": "other", "arguments": {}}', '{"name": "f", "arguments": 5}', "{broken", "", "  ", '{"a": 1}']
)
def test_text_that_is_no_call_stays_text(text: str) -> None:
    parts = [delta(content=character) for character in text] + [delta("stop"), usage()]
    (choice,) = whole(Scripted(*parts), tools=[TOOL])["choices"]
    assert choice["message"]["content"] == text and "tool_calls" not in choice["message"] and choice["finish_reason"] == "stop"


def test_text_streams_on_as_soon_as_it_can_be_no_call() -> None:
    found = pieces(Scripted(delta(content=" "), delta(content="Hi"), delta(content=" you"), delta("stop"), usage()), tools=[TOOL])
    assert [each["choices"][0]["delta"].get("content") for each in found[:-1]] == [" Hi", " you", None]


def test_thoughts_stay_apart_from_the_answer() -> None:
    parts = [delta(reasoning_content="Hm"), delta(reasoning_content="m."), delta(content="Yes."), delta("stop"), usage()]
    message = whole(Scripted(*parts))["choices"][0]["message"]
    assert message["reasoning_content"] == "Hmm." and message["content"] == "Yes."


def test_every_answer_of_several_has_its_own_seed_and_the_prompt_counts_once() -> None:
    library = Scripted(delta(content="a"), delta("stop"), usage(5, 2))
    answer = whole(library, n=3, seed=10)
    assert [asked["seed"] for asked in library.asked] == [10, 11, 12]
    assert answer["usage"]["prompt_tokens"] == 5 and answer["usage"]["completion_tokens"] == 6 and len(answer["choices"]) == 3


def test_a_seed_never_means_a_random_one() -> None:
    library = Scripted(delta("stop"), usage())
    whole(library, seed=0xFFFFFFFF)
    assert library.asked[0]["seed"] == 0


# ---- the file ------------------------------------------------------------------------------------------------------------------


def gguf(*entries: tuple[str, int, bytes], version: int = 3) -> bytes:
    data = b"GGUF" + struct.pack("<IQQ", version, 0, len(entries))
    for key, kind, value in entries:
        data += struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + value
    return data


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def test_the_header_tells_context_and_template_past_the_vocabulary(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(
        gguf(
            ("general.architecture", 8, text("llama")),
            ("llama.context_length", 4, struct.pack("<I", 2048)),
            ("llama.attention.head_count", 4, struct.pack("<I", 9)),
            ("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 3) + text("a") + text("") + text("ccc")),
            ("tokenizer.ggml.scores", 9, struct.pack("<IQ", 6, 2) + struct.pack("<ff", 1, 2)),
            ("tokenizer.chat_template", 8, text("{{ tools }}")),
        )
    )
    header = read_header(str(path))
    assert header == Header("llama", 2048, "{{ tools }}", heads=9, kv_heads=9) and header.shows_tools


def test_the_shapes_of_the_tensors_stand_behind_the_entries(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    tensor = text("blk.0.attn_q.weight") + struct.pack("<IQQIQ", 2, 576, 64, 0, 0)
    data = bytearray(gguf(("general.architecture", 8, text("llama"))) + tensor + text("norm") + struct.pack("<IQIQ", 1, 576, 0, 64))
    data[8:16] = struct.pack("<Q", 2)
    path.write_bytes(data)
    assert read_shapes(str(path)) == {"blk.0.attn_q.weight": (576, 64), "norm": (576,)}
    data[8:16] = struct.pack("<Q", 3)
    path.write_bytes(data)
    with pytest.raises(LoadError, match="ends in the middle"):
        read_shapes(str(path))


@pytest.mark.parametrize(
    "data",
    [
        b"PK\x03\x04" + b"\0" * 40,
        b"GGUF",
        gguf(version=9),
        gguf(("a", 99, b"")),
        gguf(("a", 8, struct.pack("<Q", 1 << 60))),
        gguf(("a", 9, struct.pack("<IQ", 8, 1 << 60))),
        gguf(("a", 9, struct.pack("<IQ", 4, 1 << 60))),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60),
        b"",
    ],
)
def test_a_file_that_is_none_is_named(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "wrong.gguf"
    path.write_bytes(data)
    with pytest.raises(LoadError, match=r"wrong\.gguf is no GGUF file"):
        read_header(str(path))


def test_the_context_is_what_the_author_sets_up_to_what_the_model_was_trained_with() -> None:
    assert context_of({}, Header()) == DEFAULT_CONTEXT and context_of({}, PLAIN) == 2048
    assert context_of({"context": 512}, PLAIN) == 512
    for wrong in ("many", 1, True, 5.0):
        with pytest.raises(LoadError, match="context"):
            context_of({"context": wrong}, PLAIN)


def test_answers_are_json() -> None:
    json.dumps(whole(Scripted(delta(content="a"), delta("stop"), usage())), allow_nan=False)
