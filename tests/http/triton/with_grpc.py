# mypy: ignore-errors
"""tritonclient.grpc, as its own examples use it: sync, async_infer, streams, and asyncio. Run by test_triton_clients.py in the client's
environment."""

import asyncio
import queue
import sys

import numpy as np
import tritonclient.grpc as grpcclient
import tritonclient.grpc.aio as aioclient
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

URL = sys.argv[1]
WAIT_S = 60


def simple_inputs():
    in0, in1 = np.arange(16, dtype=np.int32).reshape(1, 16), np.ones((1, 16), dtype=np.int32)
    inputs = [grpcclient.InferInput("INPUT0", [1, 16], "INT32"), grpcclient.InferInput("INPUT1", [1, 16], "INT32")]
    inputs[0].set_data_from_numpy(in0)
    inputs[1].set_data_from_numpy(in1)
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
    client = grpcclient.InferenceServerClient(url=URL)
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("simple")
    assert client.get_server_metadata().name == "fornada"
    assert [each.name for each in client.get_model_metadata("simple").inputs] == ["INPUT0", "INPUT1"]
    assert client.get_model_config("simple").config.max_batch_size == 0
    assert "simple" in [each.name for each in client.get_model_repository_index().models]
    client.unload_model("simple")
    client.load_model("simple")
    in0, in1, inputs = simple_inputs()
    check(client.infer("simple", inputs), in0, in1)
    outputs = [grpcclient.InferRequestedOutput("OUTPUT0")]
    alone = client.infer("simple", inputs, outputs=outputs, request_id="1", client_timeout=WAIT_S)
    assert alone.as_numpy("OUTPUT1") is None and alone.get_response().id == "1"
    best = client.infer("simple", inputs, outputs=[grpcclient.InferRequestedOutput("OUTPUT0", class_count=2)]).as_numpy("OUTPUT0")
    assert best.tolist() == [[b"16:15", b"15:14"]], best
    told = queue.Queue()
    for _ in range(4):
        client.async_infer("simple", inputs, lambda result, error: told.put((result, error)))
    for _ in range(4):
        result, error = told.get(timeout=WAIT_S)
        assert error is None
        check(result, in0, in1)
    for array in (
        np.array([["é".encode(), b"\xff\x00"]], dtype=np.object_),
        np.array([[1.5, -0.25]], dtype=np.float16),
        np.array([[np.nan, np.inf]], dtype=np.float64),
        np.array([[0, 2**64 - 1]], dtype=np.uint64),
    ):
        name = np_to_triton_dtype(array.dtype)
        given = grpcclient.InferInput(name, list(array.shape), name)
        given.set_data_from_numpy(array)
        got = client.infer("identity", [given]).as_numpy(name)
        assert got.dtype == array.dtype and (got.tobytes() == array.tobytes() or (got == array).all()), (got, array)
    for wrong, code, why in (
        (lambda: client.infer("nobody", inputs), "StatusCode.NOT_FOUND", "No such model nobody"),
        (lambda: client.infer("simple", inputs[:1]), "StatusCode.INVALID_ARGUMENT", "input 'INPUT1' is missing"),
        (lambda: client.register_cuda_shared_memory("r", b"", 0, 8), "StatusCode.INVALID_ARGUMENT", "no shared memory"),
    ):
        refusal = refusal_of(wrong)
        assert (refusal.status(), why in refusal.message()) == (code, True), refusal
    streamed = queue.Queue()
    client.start_stream(callback=lambda result, error: streamed.put((result, error)))
    for number in range(3):
        client.async_stream_infer("simple", inputs, request_id=str(number))
    client.async_stream_infer("simple", inputs[:1], request_id="wrong")
    client.async_stream_infer("counts", [counted(3)], request_id="many", enable_empty_final_response=True)
    for number in range(3):
        result, error = streamed.get(timeout=WAIT_S)
        assert error is None and result.get_response().id == str(number)
        check(result, in0, in1)
    _, error = streamed.get(timeout=WAIT_S)
    assert "input 'INPUT1' is missing" in error.message()
    counts = [streamed.get(timeout=WAIT_S)[0] for _ in range(4)]
    assert [each.as_numpy("step").tolist() for each in counts[:3]] == [[0], [1], [2]]
    assert counts[3].get_response().parameters["triton_final_response"].bool_param
    client.stop_stream()
    client.close()


def counted(steps):
    given = grpcclient.InferInput("steps", [1], "INT64")
    given.set_data_from_numpy(np.array([steps], dtype=np.int64))
    return given


async def asynchronous():
    async with aioclient.InferenceServerClient(url=URL) as client:
        in0, in1, inputs = simple_inputs()
        for results in await asyncio.gather(*[client.infer("simple", inputs) for _ in range(8)]):
            check(results, in0, in1)

        async def requests():
            yield {"model_name": "counts", "inputs": [counted(2)], "request_id": "1"}

        seen = []
        async for result, error in client.stream_infer(inputs_iterator=requests()):
            assert error is None
            seen.append(result.as_numpy("step").tolist())
        assert seen == [[0], [1]]


sync()
asyncio.run(asynchronous())
print("fine")
