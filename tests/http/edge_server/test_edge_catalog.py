"""Lists: the catalogue of Workers AI, and OpenAI's."""

from urllib.parse import quote

import pytest

from tests.http.edge_server.conftest import Served

AI = "/client/v4/accounts/acc/ai"


@pytest.fixture(autouse=True)
def models(edge: Served) -> None:
    edge.catalog.add("@cf/meta/llama", task="text-generation", description="A llama")
    edge.catalog.add("@fornada/classifier", task="image-classification", aliases=["@cf/microsoft/resnet-50"], price={"image": 0.5})
    edge.catalog.add("org/pose", task="pose-estimation")


def names(edge: Served, query: str = "") -> list[str]:
    return [item["name"] for item in edge.fetch("GET", f"{AI}/models/search{query}").result]


def test_items_are_those_of_workers_ai(edge: Served):
    response = edge.fetch("GET", f"{AI}/models/search?search=resnet")
    (item,) = response.result
    assert item["name"] == "@fornada/classifier" and item["source"] == 1 and item["tags"] == []
    assert item["task"]["id"] == "00cd182b-bf30-4fc4-8481-84a3ab349657" and item["task"]["name"] == "Image Classification"
    assert item["created_at"] == "2023-11-14 22:13:20.000"
    assert {entry["property_id"] for entry in item["properties"]} == {"aliases", "async_queue", "price"}
    assert len(item["id"]) == 36 and item["id"] == edge.fetch("GET", f"{AI}/models/search?search=resnet").result[0]["id"]
    assert response.json()["result_info"] == {"page": 1, "per_page": 50, "count": 1, "total_count": 1, "total_pages": 1}


def test_properties_say_what_the_node_knows_and_what_the_author_says(edge: Served):
    edge.catalog.add("a/chat", task="text-generation", engine="gguf", settings={"context": 2048}, price={"input_token": 0.5, "request": 2})
    edge.catalog.add(
        "a/vectors", task="text-embeddings", properties={"output_dimensions": "384", "beta": "true", "info": "https://a.example"}
    )

    def properties(name: str) -> dict[str, object]:
        (item,) = edge.fetch("GET", f"{AI}/models/search?search={name}").result
        return {entry["property_id"]: entry["value"] for entry in item["properties"]}

    chat, vectors = properties("a/chat"), properties("a/vectors")
    assert (chat["context_window"], chat["function_calling"], chat["lora"]) == ("2048", "true", "true")
    assert chat["price"] == [
        {"unit": "per M input tokens", "price": 500000.0, "currency": "neurons"},
        {"unit": "per inference request", "price": 2, "currency": "neurons"},
    ]
    assert vectors == {"async_queue": "true", "output_dimensions": "384", "beta": "true", "info": "https://a.example"}
    assert "a/vectors" not in names(edge, "?hide_experimental=true") and "a/chat" in names(edge, "?hide_experimental=true")


def test_what_is_past_its_day_is_shown_to_who_asks_for_it(edge: Served):
    edge.catalog.add("a/old", properties={"planned_deprecation_date": "2020-01-01"})
    edge.catalog.add("a/later", properties={"planned_deprecation_date": "2999-12-31"})
    assert "a/old" not in names(edge) and "a/later" in names(edge)
    assert {"a/old", "a/later"} <= set(names(edge, "?include_deprecated=true"))


def test_a_marketplace_gets_its_own_form(edge: Served):
    edge.catalog.add("a/chat", task="text-generation", engine="gguf", price={"token": 1000})
    found = {item["id"]: item for item in edge.fetch("GET", f"{AI}/models/search?format=openrouter").result}
    chat, classifier = found["a/chat"], found["@fornada/classifier"]
    assert (chat["context_length"], chat["created"], chat["supported_features"]) == (4096, 1700000000, ["tools"])
    assert chat["pricing"] == {"prompt": "0.011", "completion": "0.011", "request": "0", "image": "0"}
    assert (chat["input_modalities"], classifier["input_modalities"]) == (["text"], ["image"])
    assert classifier["context_length"] is None and classifier["pricing"]["image"] == "0.0000055"


def test_pages_end(edge: Served):
    all_names = names(edge)
    assert len(all_names) == 4
    for per_page in (1, 3, 4, 50):
        seen, page = [], 1
        while found := names(edge, f"?per_page={per_page}&page={page}"):
            seen += found
            page += 1
            assert page < 10
        assert seen == all_names
    info = edge.fetch("GET", f"{AI}/models/search?per_page=3&page=9").json()["result_info"]
    assert info == {"page": 9, "per_page": 3, "count": 0, "total_count": 4, "total_pages": 2}
    assert len(names(edge, "?page=0&per_page=0")) == 4, "what the SDK sends for nothing"
    for query in (
        "page=-1",
        "page=x",
        "per_page=1001",
        "format=csv",
        "hide_experimental=maybe",
        "include_deprecated=2",
        "page=9999999999999999999999",
        "page=1.5",
    ):
        refused = edge.fetch("GET", f"{AI}/models/search?{query}")
        assert (refused.status, refused.code) == (400, 5006), query


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("search=LLAMA", ["@cf/meta/llama"]),
        ("search=nothing", []),
        ("task=Text+Generation", ["@cf/meta/llama"]),
        ("task=c329a1f9-323d-4e91-b2aa-582dd4188d34", ["@cf/meta/llama"]),
        ("task=Pose%20Estimation", ["org/pose"]),
        ("author=meta", ["@cf/meta/llama"]),
        ("author=microsoft", ["@fornada/classifier"]),
        ("author=fornada", ["@fornada/classifier"]),
        ("source=2", []),
        ("source=1&hide_experimental=true&include_deprecated=false&format=openrouter&search=llama", ["@cf/meta/llama"]),
    ],
)
def test_filters(edge: Served, query: str, found: list[str]):
    assert names(edge, f"?{query}") == found


@pytest.mark.parametrize("name", ["@cf/meta/llama", "@fornada/classifier", "@cf/microsoft/resnet-50", "org/pose", "@test/a"])
def test_schemas_have_what_the_sdk_parses_strictly(edge: Served, name: str):
    result = edge.fetch("GET", f"{AI}/models/schema?model={quote(name, safe='')}").result
    for side in ("input", "output"):
        assert isinstance(result[side]["type"], str) and isinstance(result[side]["description"], str)
        assert isinstance(result[side]["additionalProperties"], bool)
    assert edge.fetch("GET", f"{AI}/models/schema?model={name}").status == 200


def test_a_schema_of_nothing_is_refused(edge: Served):
    assert edge.fetch("GET", f"{AI}/models/schema").code == 5006
    unknown = edge.fetch("GET", f"{AI}/models/schema?model=@no/such")
    assert (unknown.status, unknown.code, unknown.message) == (400, 5007, "No such model @no/such or task")


@pytest.mark.parametrize(
    ("method", "path", "payload", "status", "message"),
    [
        ("POST", f"{AI}/run/@cf/meta/lama", {}, 400, "No such model @cf/meta/lama or task"),
        ("POST", f"{AI}/run", {"model": "@cf/meta/lama", "input": {}}, 400, "No such model @cf/meta/lama or task"),
        ("GET", f"{AI}/models/schema?model=@cf/meta/lama", None, 400, "No such model @cf/meta/lama or task"),
        ("POST", "/v1/chat/completions", {"model": "@cf/meta/lama", "messages": []}, 404, "The model '@cf/meta/lama' does not exist"),
        ("GET", "/v1/models/@cf/meta/lama", None, 404, "The model '@cf/meta/lama' does not exist"),
        ("GET", "/api/v1/models/@cf/meta/lama", None, 404, "No such model @cf/meta/lama"),
        ("POST", "/api/v1/models/@cf/meta/lama/load", {}, 404, "No such model @cf/meta/lama"),
        ("DELETE", "/api/v1/models/@cf/meta/lama", None, 404, "No such model @cf/meta/lama"),
    ],
)
def test_a_mistyped_name_is_told_the_one_that_was_meant_at_every_door(
    edge: Served, method: str, path: str, payload: object, status: int, message: str
):
    answer = edge.fetch(method, path, payload=payload)
    assert (answer.status, answer.code, answer.message) == (status, 5007, f"{message}; did you mean '@cf/meta/llama'?")


def test_authors_and_tasks(edge: Served):
    assert [(author["name"], author["models"]) for author in edge.fetch("GET", f"{AI}/authors/search").result] == [
        ("fornada", 1),
        ("meta", 1),
        ("org", 1),
        ("test", 1),
    ]
    tasks = {task["name"]: task for task in edge.fetch("GET", f"{AI}/tasks/search/").result}
    assert {"Text Generation", "Object Detection", "Custom", "Pose Estimation"} <= tasks.keys()
    assert all(set(task) == {"id", "name", "description"} for task in tasks.values())


@pytest.mark.parametrize("base", ["/v1", f"{AI}/v1"])
def test_openai_s_lists(edge: Served, base: str):
    listed = edge.fetch("GET", f"{base}/models").json()
    assert listed["object"] == "list"
    (llama,) = [each for each in listed["data"] if each["id"] == "@cf/meta/llama"]
    assert llama == {
        "id": "@cf/meta/llama",
        "object": "model",
        "created": 1700000000,
        "owned_by": "meta",
        "type": "model",
        "display_name": "@cf/meta/llama",
        "created_at": "2023-11-14T22:13:20Z",
        "lifecycle": "active",
    }
    assert (listed["has_more"], listed["last_id"]) == (False, listed["data"][-1]["id"])
    for spelled in ("@cf/meta/llama", "@cf%2Fmeta%2Fllama", "%40cf%2Fmeta%2Fllama", "@cf/microsoft/resnet-50", "@cf/meta/llama/"):
        one = edge.fetch("GET", f"{base}/models/{spelled}").json()
        assert one["object"] == "model" and one["id"] in ("@cf/meta/llama", "@cf/microsoft/resnet-50")
    unknown = edge.fetch("GET", f"{base}/models/no/such")
    assert (unknown.status, unknown.code) == (404, 5007)
    assert unknown.json()["error"]["code"] == "5007"
    assert edge.fetch("GET", f"{base}/models/a/../b").status == 400
