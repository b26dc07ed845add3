"""SmolLM2 answers, in whole and in pieces, as OpenAI's objects. What is tested is the shape and the engine, not the wit."""

import json
import math
import shutil
import time
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.bounds import bound, count
from tests.harness.adapters import FILE_NAMES, config, noise
from tests.models.conftest import MODELS, StartRunner
from tests.models.runner import Runner, Told

pytestmark = [pytest.mark.packages, pytest.mark.slow, pytest.mark.timeout(600)]

EXAMPLE = MODELS / "smollm2-135m-instruct" / "example"
FRANCE = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]
PARIS = "The capital of France is Paris."
STORY = [{"role": "user", "content": "Tell me a long story about a dragon."}]
WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "The weather in a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}}, "required": ["city"]},
}
AROUND = """
import fornada_sdk

class Model(fornada_sdk.Model):
    def warmup(self, context):
        assert self.engine.run({"prompt": "Hi", "max_tokens": 1})["choices"]

    def run(self, request, context):
        asked = {"prompt": request.body.json["question"], "temperature": 0, "max_tokens": 24}
        return {"answer": self.engine.answer(asked, context)["choices"][0]["message"]["content"]}
"""
TIME: dict[str, Any] = {"name": "get_time", "parameters": None}


def ask(runner: Runner, **request: Any) -> Any:
    return runner.ask({"messages": FRANCE, "temperature": 0, "max_tokens": 24, **request}).json


def text(answer: Any) -> str:
    return str(answer["choices"][0]["message"]["content"])


def joined(items: list[Any], index: int = 0) -> str:
    choices = [choice for item in items for choice in item["choices"] if choice["index"] == index]
    return "".join(choice["delta"].get("content") or "" if "delta" in choice else choice["text"] for choice in choices)


def refusal(runner: Runner, **request: Any) -> str:
    answer = runner.ask({"messages": FRANCE, "max_tokens": 4, **request})
    assert answer.status == "bad_request", answer.head
    return str(answer.head["message"])


def test_the_shipped_example_gives_the_shipped_answer_each_time(chat: Runner) -> None:
    wanted = json.loads((EXAMPLE / "answer.json").read_text())
    for _ in range(2):
        told = chat.send((EXAMPLE / "request.json").read_bytes(), "application/json")
        answer = told.json
        (choice,) = answer["choices"]
        assert choice["message"] == {"role": "assistant", "content": wanted["response"], "refusal": None}
        assert choice["finish_reason"] == "stop" and choice["index"] == 0 and choice["logprobs"] is None
        assert answer["object"] == "chat.completion" and answer["model"] == "@fornada/smollm2-135m-instruct"
        assert answer["id"].startswith("chatcmpl-") and abs(answer["created"] - time.time()) < 60
        assert {name: answer["usage"][name] for name in wanted["usage"]} == wanted["usage"]
        assert told.head["usage"] == {"input_tokens": 42, "output_tokens": 8}


def test_nothing_of_it_listens_on_a_network(chat: Runner) -> None:
    ask(chat, max_tokens=1)
    sockets = chat.sockets()
    families = [line.split()[0] for line in sockets]
    assert set(families) == {"unix"}, sockets
    # Its one listener has lost its name: nobody can connect to it.
    listeners = [line for line in sockets if int(line.split()[4], 16) & 0x10000]
    assert len(listeners) == 1 and listeners[0].split()[-1] == "llama.sock"
    assert not (chat.log.parent / "llama.sock").exists()


def test_a_stream_has_several_chunks_that_make_the_same_text(chat: Runner) -> None:
    items = chat.stream({"messages": FRANCE, "temperature": 0, "max_tokens": 24, "stream": True})
    assert joined(items) == PARIS and len(items) >= 8
    assert all(item["object"] == "chat.completion.chunk" and item["id"] == items[0]["id"] for item in items)
    assert items[0]["choices"][0]["delta"] == {"role": "assistant", "content": "The"}
    assert [item["choices"][0]["finish_reason"] for item in items[:-1]] == [None] * (len(items) - 2) + ["stop"]
    assert items[-1]["choices"] == [] and items[-1]["usage"]["completion_tokens"] == 8


def test_prompt_is_the_users_message_and_raw_is_no_message(chat: Runner) -> None:
    prompt = FRANCE[0]["content"]
    assert text(chat.ask({"prompt": prompt, "temperature": 0, "max_tokens": 24}).json) == PARIS
    raw = chat.ask({"prompt": "Paris is the capital of", "raw": "true", "temperature": 0, "max_tokens": 3, "echo": True}).json
    assert raw["object"] == "text_completion" and len(raw["choices"][0]["text"]) > len("Paris is the capital of") + 3
    assert raw["choices"][0]["text"].startswith("Paris is the capital of ")
    assert raw["choices"][0]["finish_reason"] == "length" and raw["usage"]["completion_tokens"] == 3
    assert 4 <= raw["usage"]["prompt_tokens"] <= 6
    items = chat.stream({"prompt": ["One two three", "Uno dos tres"], "raw": True, "temperature": 0, "max_tokens": 3})
    assert [joined(items, 0) != "", joined(items, 1) != ""] == [True, True] and items[-1]["usage"]["completion_tokens"] == 6


def test_it_stops_where_it_is_told_to(chat: Runner) -> None:
    for stop in (" of", [" of", "never"]):
        answer = ask(chat, stop=stop)
        assert text(answer) == "The capital" and answer["choices"][0]["finish_reason"] == "stop"
    assert joined(chat.stream({"messages": FRANCE, "temperature": 0, "max_tokens": 24, "stop": ["France"]})) == "The capital of "


def test_max_tokens_cuts_and_says_so(chat: Runner) -> None:
    answer = ask(chat, max_tokens=3)
    assert text(answer) == "The capital of" and answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 3
    assert text(ask(chat, max_tokens=None, max_completion_tokens=2)) == "The capital"


def test_a_seed_makes_the_same_answer_again(chat: Runner) -> None:
    first, again, other = (
        text(ask(chat, messages=STORY, temperature=1.2, seed=seed, max_tokens=10)) for seed in (9999999999, 9999999999, 2)
    )
    assert first == again != other


def test_several_answers_to_one_request(chat: Runner) -> None:
    answer = ask(chat, messages=STORY, n=3, temperature=1.5, seed=1, max_tokens=6)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert len({choice["message"]["content"] for choice in answer["choices"]}) == 3
    assert answer["usage"]["completion_tokens"] == 18
    items = chat.stream({"messages": STORY, "n": 2, "temperature": 1.5, "seed": 1, "max_tokens": 6})
    assert joined(items, 0) == text(answer) and joined(items, 1) == answer["choices"][1]["message"]["content"]


@pytest.mark.parametrize("envelope", [True, False])
def test_a_schema_is_obeyed(chat: Runner, envelope: bool) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}, "people": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["city", "people"],
        "additionalProperties": False,
    }
    asked = {"name": "answer", "schema": schema, "strict": True} if envelope else schema
    value = json.loads(text(ask(chat, response_format={"type": "json_schema", "json_schema": asked}, max_tokens=40)))
    assert sorted(value) == ["city", "people"] and value["city"] in ("Paris", "Rome") and 0 <= value["people"] <= 99


def test_json_mode_gives_an_object_also_in_pieces(chat: Runner) -> None:
    request = {"messages": FRANCE, "temperature": 0, "max_tokens": 80, "response_format": {"type": "json_object"}}
    whole = text(chat.ask(request).json)
    assert isinstance(json.loads(whole), dict)
    assert joined(chat.stream(request)) == whole


@pytest.mark.parametrize("tool", [WEATHER, {"type": "function", "function": WEATHER}])
def test_a_call_that_must_be_made_is_made(chat: Runner, tool: Any) -> None:
    request = {"messages": [{"role": "user", "content": "How is the weather in Lisbon?"}], "temperature": 0, "max_tokens": 60}
    request |= {"tools": [tool, TIME], "tool_choice": {"type": "function", "function": {"name": "get_weather"}}}
    (choice,) = chat.ask(request).json["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None
    assert call["type"] == "function" and call["id"].startswith("call_") and call["function"]["name"] == "get_weather"
    assert list(json.loads(call["function"]["arguments"])) == ["city"]
    items = chat.stream(request)
    assert items[0]["choices"][0]["delta"]["tool_calls"][0]["function"] == call["function"]
    assert items[1]["choices"][0]["finish_reason"] == "tool_calls" and joined(items) == ""


def test_any_of_several_tools_may_be_what_is_required(chat: Runner) -> None:
    answer = ask(chat, tools=[WEATHER, TIME], tool_choice="required", max_tokens=60)
    assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"] in ("get_weather", "get_time")


def test_tools_that_may_be_called_leave_text_alone(chat: Runner) -> None:
    asked = {"messages": [{"role": "user", "content": "Say hello."}], "temperature": 0, "max_tokens": 12}
    assert chat.ask({**asked, "tools": [WEATHER], "tool_choice": "none"}).json["choices"] == chat.ask(asked).json["choices"]
    answer = chat.ask({**asked, "tools": [WEATHER]}).json["choices"][0]["message"]
    assert answer["content"] or answer["tool_calls"]


def test_calls_and_their_results_are_part_of_a_conversation(chat: Runner) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Lisbon"}'}}
    for made in (call, {"name": "get_weather", "arguments": {"city": "Lisbon"}}):
        conversation = [
            {"role": "user", "content": "How is the weather in Lisbon?"},
            {"role": "assistant", "content": None, "tool_calls": [made]},
            {"role": "tool", "tool_call_id": "c1", "content": "sunny, 26 degrees"},
        ]
        assert text(ask(chat, messages=conversation, tools=[WEATHER], max_tokens=8))


def test_log_probabilities_are_told_where_they_are_asked_for(chat: Runner) -> None:
    answer = ask(chat, logprobs=True, top_logprobs=2, max_tokens=3)
    tokens = answer["choices"][0]["logprobs"]["content"]
    assert [each["token"] for each in tokens] == ["The", " capital", " of"]
    assert all(each["logprob"] <= 0 and len(each["top_logprobs"]) == 2 for each in tokens) and sorted(tokens[0]) == [
        "bytes",
        "logprob",
        "token",
        "top_logprobs",
    ]
    raw = chat.ask({"prompt": "Once upon", "raw": True, "logprobs": 2, "max_tokens": 3, "temperature": 0}).json["choices"][0]
    assert "".join(raw["logprobs"]["tokens"]) == raw["text"] and len(raw["logprobs"]["top_logprobs"][0]) == 2


def test_content_may_be_null_or_a_list_of_parts_and_every_option_null(chat: Runner) -> None:
    parts = [{"type": "text", "text": "What is the capital of France?"}, {"type": "text", "text": "Answer in one sentence."}]
    conversation = [{"role": "system", "content": None}, {"role": "user", "content": parts}]
    names = ("stop", "seed", "tools", "tool_choice", "response_format", "top_p", "top_k", "n", "logprobs", "top_logprobs", "lora", "raw")
    more = ("frequency_penalty", "presence_penalty", "repetition_penalty", "max_completion_tokens", "stream_options", "functions", "image")
    assert "Paris" in text(ask(chat, messages=conversation, **dict.fromkeys([*names, *more])))


def test_penalties_and_bounds_of_choice_are_taken(chat: Runner) -> None:
    settings = {"top_p": 0.5, "top_k": 5, "repetition_penalty": 1.1, "frequency_penalty": 0.5, "presence_penalty": -0.5, "min_p": 0.1}
    assert text(ask(chat, temperature=0.5, **settings))
    assert text(ask(chat, repetition_penalty=0)) == PARIS
    assert "Paris" not in text(ask(chat, logit_bias={"7042": -100}))


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        ({"messages": []}, "messages"),
        ({"messages": None}, '"messages"'),
        ({"messages": "hello"}, "messages"),
        ({"messages": [{"role": "user"}, {"role": "alien", "content": "a"}]}, "role"),
        ({"messages": [{"role": "user", "content": 5}]}, "content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]}, "text alone"),
        ({"messages": [{"role": "user", "content": "a\ud800"}]}, "surrogate"),
        ({"prompt": "a"}, "exclude"),
        ({"messages": None, "prompt": ""}, "prompt"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"temperature": 5.1}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_k": -2}, "top_k"),
        ({"n": 129}, '"n"'),
        ({"stop": [1]}, "stop"),
        ({"seed": 1.5}, "seed"),
        ({"lora": "mine"}, "lora"),
        ({"lora": {"finetune": "../mine"}}, "lora"),
        ({"tools": [{"name": ""}]}, "tools"),
        ({"tools": [WEATHER], "tool_choice": "any"}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "other"}}}, "get_weather"),
        ({"tool_choice": "required"}, "tools"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {"type": "nonsense"}}}, "nonsense"),
        ({"response_format": {"type": "json_schema", "json_schema": {"$ref": "file:///etc/passwd"}}}, "ref"),
        ({"response_format": {"type": "json_schema", "json_schema": {"type": "string", "minLength": 100000}}}, "grammar"),
        ({"response_format": {"type": "json_schema", "json_schema": {"enum": [str(number) for number in range(5000)]}}}, "too large"),
        ({"response_format": {"type": "json_schema", "json_schema": {"type": "string", "minLength": 3, "maxLength": 2}}}, "minLength"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
    ],
)
def test_what_cannot_be_served_is_the_callers_fault_and_named(chat: Runner, request_: dict[str, Any], why: str) -> None:
    assert why in refusal(chat, **request_)


def test_a_prompt_beyond_the_context_is_refused_with_both_numbers(chat: Runner) -> None:
    message = refusal(chat, messages=[{"role": "user", "content": "word " * 3000}])
    assert "3031 tokens" in message and "2048" in message
    (told,) = chat.wait(chat.begin({"messages": [{"role": "user", "content": "word " * 3000}]}))
    assert told.status == "bad_request" and not told.items and "2048" in told.head["message"]


def test_cancelling_frees_the_slot_within_two_tokens(chat: Runner) -> None:
    asked = {"messages": STORY, "temperature": 0, "max_tokens": 1500}
    chat.ask({**asked, "max_tokens": 1})  # the prompt is known from here on
    began = time.monotonic()
    (told,) = chat.wait(chat.begin(asked), cancel_after=4)
    pace_s = max(told.began_s, (time.monotonic() - began) / 4)
    assert told.status == "cancelled" and len(told.items) <= 4 + 3
    # Both slots answer at once, and sooner than what was cancelled would have.
    began = time.monotonic()
    several = [chat.begin({"messages": FRANCE, "temperature": 0, "max_tokens": 4}) for _ in range(2)]
    assert [joined(each.items) for each in chat.wait(*several)] == ["The capital of France"] * 2
    assert time.monotonic() - began < max(bound(10), 100 * pace_s)


def test_a_long_prompt_is_given_up_between_two_pieces_of_it(chat: Runner) -> None:
    before = chat.cpu_s()
    number = chat.begin({"messages": [{"role": "user", "content": "cat dog " * 900}], "max_tokens": 5})
    limit = time.monotonic() + bound(20)
    while chat.cpu_s() < before + 0.5:
        assert time.monotonic() < limit, "it reads the prompt"
        time.sleep(0.01)
    chat.cancel(number)
    began = time.monotonic()
    (told,) = chat.wait(number)
    assert told.status == "cancelled" and not told.items and time.monotonic() - began < bound(5)


def test_two_conversations_go_on_at_the_same_time(chat: Runner) -> None:
    alone: list[Told] = chat.wait(chat.begin({"messages": FRANCE, "temperature": 0, "max_tokens": 12}))
    both = chat.wait(*(chat.begin({"messages": FRANCE, "temperature": 0, "max_tokens": 12}) for _ in range(2)))
    assert [joined(each.items) for each in both] == [joined(alone[0].items)] * 2
    assert all(each.head["usage"] == {"input_tokens": 42, "output_tokens": 8} for each in both)


def test_an_authors_own_code_may_stand_around_the_weights(start: StartRunner, tmp_path: Path) -> None:
    folder = tmp_path / "around"
    shutil.copytree(EXAMPLE.parent, folder, ignore=shutil.ignore_patterns("example"))
    (folder / "model.py").write_text(AROUND)
    runner = start(folder, entry="model.py")
    assert runner.ask({"question": FRANCE[0]["content"]}).json == {"answer": PARIS}


def test_weights_that_llama_cpp_cannot_load_are_named(start: StartRunner, tmp_path: Path) -> None:
    (tmp_path / "cut.gguf").write_bytes(b"GGUF" + (3).to_bytes(4, "little") + bytes(16))
    with pytest.raises(AssertionError, match=r"llama\.cpp can't load cut\.gguf"):
        start(EXAMPLE.parent, artifacts={"cut.gguf": str(tmp_path / "cut.gguf")})


# ---- fine-tunes -----------------------------------------------------------------------------------------------------------------

HIDDEN, INNER, LAYERS, RANK = 576, 1536, 30, 4
"""Of SmolLM2-135M."""


def adapter(folder: Path, *, strength: float, module: str = "self_attn.q_proj", out: int = HIDDEN, inner: int = HIDDEN) -> None:
    """An adapter for every layer, as PEFT writes one."""
    folder.mkdir(parents=True)
    made = noise(module=module, layers=LAYERS, out=out, inner=inner, rank=RANK, strength=strength)
    for name, data in zip(FILE_NAMES, (config(r=RANK, lora_alpha=8), made), strict=True):
        (folder / name).write_bytes(data)


@pytest.fixture(scope="module")
def tuned(start: StartRunner, tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """With a folder of adapters: one of no strength, two that change everything, and one of another model."""
    folder = tmp_path_factory.mktemp("adapters")
    adapter(folder / "nothing", strength=0.0)
    adapter(folder / "queries", strength=2.0)
    adapter(folder / "down", strength=2.0, module="mlp.down_proj", inner=INNER)
    adapter(folder / "larger", strength=1.0, module="self_attn.o_proj", out=640, inner=640)
    return start(EXAMPLE.parent, adapters=str(folder))


def test_an_adapter_changes_the_answers_of_those_who_ask_for_it(tuned: Runner) -> None:
    assert text(ask(tuned)) == PARIS
    assert text(ask(tuned, lora={"finetune": "nothing"})) == PARIS
    changed = text(ask(tuned, lora={"finetune": "queries"}))
    other = text(ask(tuned, lora={"finetune": "down"}))
    assert len({PARIS, changed, other}) == 3
    for _ in range(2):
        assert text(ask(tuned, lora={"finetune": "queries"})) == changed and text(ask(tuned)) == PARIS
    raw = {"prompt": "The capital of France is", "raw": True, "temperature": 0, "max_tokens": 6}
    assert tuned.ask({**raw, "lora": {"finetune": "queries"}}).json["choices"] != tuned.ask(raw).json["choices"]
    items = tuned.stream({"messages": FRANCE, "temperature": 0, "max_tokens": 24, "lora": {"finetune": "queries"}})
    assert joined(items) == changed
    mine, theirs = tuned.wait(
        tuned.begin({"messages": FRANCE, "temperature": 0, "max_tokens": 12, "lora": {"finetune": "queries"}}),
        tuned.begin({"messages": FRANCE, "temperature": 0, "max_tokens": 12}),
    )
    assert joined(theirs.items) == PARIS and joined(mine.items) != PARIS, "side by side, each its own"


def test_an_adapter_that_doesn_t_fit_harms_nobody(tuned: Runner) -> None:
    assert "lora" in refusal(tuned, lora={"finetune": "larger"})
    assert "aren't there" in refusal(tuned, lora={"finetune": "unknown"})
    assert text(ask(tuned)) == PARIS


def test_adapters_are_there_again_after_a_sleep(tuned: Runner) -> None:
    before = text(ask(tuned, lora={"finetune": "down"}))
    tuned.sleep()
    tuned.wake()
    assert text(ask(tuned, lora={"finetune": "down"})) == before and text(ask(tuned)) == PARIS


# ---- what a grammar promises ----------------------------------------------------------------------------------------------------

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 120}, "mood": {"enum": ["glad", "sad"]}},
    "required": ["age", "mood"],
    "additionalProperties": False,
}


def test_a_schema_is_honoured_whatever_the_dice_say(chat: Runner) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
    validator = jsonschema_rs.validator_for(PERSON)
    found = set()
    for seed in range(count(5, long=20)):
        answer = ask(chat, messages=STORY, response_format=wanted, temperature=1.0, seed=seed + 1, max_tokens=160)
        validator.validate(json.loads(text(answer)))
        found.add(text(answer))
    assert len(found) > 1, "hot enough to write something else"


def test_a_forced_call_has_arguments_of_its_schema_whatever_the_dice_say(chat: Runner) -> None:
    choice = {"type": "function", "function": {"name": "remember"}}
    tools = [{"type": "function", "function": {"name": "remember", "parameters": PERSON}}]
    validator = jsonschema_rs.validator_for(PERSON)
    ids = set()
    for seed in range(count(2, long=5)):
        answer = ask(chat, messages=STORY, tools=tools, tool_choice=choice, temperature=1.0, seed=seed + 1, max_tokens=160)
        (call,) = answer["choices"][0]["message"]["tool_calls"]
        validator.validate(json.loads(call["function"]["arguments"]))
        ids.add(call["id"])
    assert len(ids) == count(2, long=5)


def test_log_probabilities_are_those_of_a_choice(chat: Runner) -> None:
    answer = ask(chat, logprobs=True, top_logprobs=20, max_tokens=5)
    for token in answer["choices"][0]["logprobs"]["content"]:
        shares = [math.exp(each["logprob"]) for each in token["top_logprobs"]]
        assert shares == sorted(shares, reverse=True) and 0.5 < sum(shares) <= 1.0001
        assert token["top_logprobs"][0]["token"] == token["token"], "the likeliest is what temperature 0 takes"
