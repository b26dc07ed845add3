# mypy: ignore-errors
"""tritonclient.http, as its own examples use it: sync, async_infer, and asyncio. Run by test_triton_clients.py in the client's environment."""

import asyncio
import sys

import numpy as np
import tritonclient.http as httpclient
import tritonclient.http.aio as aioclient
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

URL = sys.argv[1]


def simple_inputs(binary):
    in0, in1 = np.arange(16, dtype=np.int32).reshape(1, 16), np.ones((1, 16), dtype=np.int32)
    inputs = [httpclient.InferInput("INPUT0", [1, 16], "INT32"), httpclient.InferInput("INPUT1", [1, 16], "INT32")]
    inputs[0].set_data_from_numpy(in0, binary_data=binary)
    inputs[1].set_data_from_numpy(in1, binary_data=binary)
    return in0, in1, inputs


def check(results, in0, in1):
    assert (results.as_numpy("OUTPUT0") == in0 + in1).all()
    assert (results.as_numpy("OUTPUT1") == in0 - in1).all()


def refusal_of(call):
    try:
        call()
    except InferenceServerException as refusal:
        return refusal
    raise AssertionError("it was not refused")


def sync():
    client = httpclient.InferenceServerClient(url=URL, concurrency=4)
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("simple")
    assert client.get_server_metadata()["name"] == "fornada"
    metadata = client.get_model_metadata("simple")
    assert [each["name"] for each in metadata["inputs"]] == ["INPUT0", "INPUT1"]
    assert client.get_model_config("simple")["max_batch_size"] == 0
    assert "simple" in [each["name"] for each in client.get_model_repository_index()]
    client.unload_model("simple")
    client.load_model("simple")
    assert client.get_inference_statistics("simple")["model_stats"][0]["name"] == "simple"
    for binary in (True, False):
        in0, in1, inputs = simple_inputs(binary)
        outputs = [
            httpclient.InferRequestedOutput("OUTPUT0", binary_data=binary),
            httpclient.InferRequestedOutput("OUTPUT1", binary_data=not binary),
        ]
        results = client.infer("simple", inputs, outputs=outputs, request_id="1", query_params={"test": 1}, headers={"test": "1"})
        check(results, in0, in1)
        assert results.get_response()["id"] == "1"
        check(client.infer("simple", inputs), in0, in1)
    for algorithm in ("gzip", "deflate"):
        check(client.infer("simple", inputs, request_compression_algorithm=algorithm, response_compression_algorithm=algorithm), in0, in1)
    best = client.infer("simple", inputs, outputs=[httpclient.InferRequestedOutput("OUTPUT0", class_count=2)]).as_numpy("OUTPUT0")
    assert best.tolist() == [[b"16:15", b"15:14"]], best
    requests = [client.async_infer("simple", inputs) for _ in range(8)]
    for request in requests:
        check(request.get_result(), in0, in1)
    for array in (
        np.array([["é".encode(), b"\xff\x00"]], dtype=np.object_),
        np.array([[1.5, -0.25]], dtype=np.float16),
        np.array([[np.nan, np.inf]], dtype=np.float64),
        np.array([[True, False]]),
        np.array([[0, 2**64 - 1]], dtype=np.uint64),
    ):
        name = np_to_triton_dtype(array.dtype)
        given = httpclient.InferInput(name, list(array.shape), name)
        given.set_data_from_numpy(array)
        got = client.infer("identity", [given]).as_numpy(name)
        assert got.dtype == array.dtype and got.shape == array.shape, (got, array)
        assert got.tobytes() == array.tobytes() or (got == array).all(), (got, array)
    with_text = httpclient.InferInput("BYTES", [1, 2], "BYTES")
    with_text.set_data_from_numpy(np.array([["a", "b"]], dtype=np.object_), binary_data=False)
    got = client.infer("identity", [with_text], outputs=[httpclient.InferRequestedOutput("BYTES", binary_data=False)]).as_numpy("BYTES")
    assert got.tolist() == [["a", "b"]], got
    for wrong, why in (
        (lambda: client.infer("nobody", inputs), "No such model nobody"),
        (lambda: client.infer("simple", inputs[:1]), "input 'INPUT1' is missing"),
        (lambda: client.register_system_shared_memory("r", "/r", 8), "no shared memory"),
    ):
        refusal = refusal_of(wrong)
        assert why in refusal.message(), refusal
    client.close()


async def asynchronous():
    async with aioclient.InferenceServerClient(url=URL) as client:
        assert await client.is_server_ready()
        in0, in1, inputs = simple_inputs(binary=True)
        for results in await asyncio.gather(*[client.infer("simple", inputs) for _ in range(8)]):
            check(results, in0, in1)


sync()
asyncio.run(asynchronous())
print("fine")
