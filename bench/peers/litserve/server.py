"""LitServe: the network and a paced stream. `python server.py PORT NETWORK`. One worker each, as LitServe starts them.

The stream is its asynchronous loop: of its three, the one that serves many streams at once, and at the lowest cost.
"""

import asyncio
import json
import sys

import litserve
import numpy
import onnxruntime

TOKENS, PAUSE_S = 100, 0.02
PORT, NETWORK = sys.argv[1:]


class Mlp(litserve.LitAPI):
    def setup(self, device):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(NETWORK, options, providers=["CPUExecutionProvider"])

    def decode_request(self, request):
        return numpy.array(request["x"], dtype="float32")

    def predict(self, x):
        return self.session.run(["y"], {"x": x[None]})[0][0]

    def encode_response(self, output):
        return {"y": output.tolist()}


class Stream(litserve.LitAPI):
    def setup(self, device):
        pass

    async def decode_request(self, request):
        return request

    async def predict(self, x):
        clock = asyncio.get_running_loop().time
        began = clock()
        for number in range(TOKENS):
            await asyncio.sleep(began + number * PAUSE_S - clock())
            yield {"response": f"token{number} "}

    async def encode_response(self, output):
        async for each in output:
            yield f"data: {json.dumps(each)}\n\n"


if __name__ == "__main__":
    server = litserve.LitServer(
        [Mlp(api_path="/mlp"), Stream(api_path="/stream", stream=True, enable_async=True)], accelerator="cpu", workers_per_device=1
    )
    server.run(host="127.0.0.1", port=int(PORT), log_level="error", generate_client_file=False, access_log=False)
