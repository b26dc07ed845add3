"""MLServer: the network and a paced stream as runtimes of their own. `mlserver start FOLDER`; BENCH_NETWORK names the file."""

import asyncio
import os

import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec, StringCodec
from mlserver.types import InferenceResponse

TOKENS, PAUSE_S = 100, 0.02


class Mlp(MLModel):
    async def load(self):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(os.environ["BENCH_NETWORK"], options, providers=["CPUExecutionProvider"])
        return True

    async def predict(self, payload):
        x = NumpyCodec.decode_input(payload.inputs[0])
        (y,) = self.session.run(["y"], {"x": x.astype("float32", copy=False)})
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("y", y)])


class Stream(MLModel):
    async def predict_stream(self, payloads):
        async for _ in payloads:
            break
        clock = asyncio.get_running_loop().time
        began = clock()
        for number in range(TOKENS):
            await asyncio.sleep(began + number * PAUSE_S - clock())
            yield InferenceResponse(model_name=self.name, outputs=[StringCodec.encode_output("response", [f"token{number} "])])
