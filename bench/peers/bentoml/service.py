"""BentoML: the network and a paced stream, in the process that speaks HTTP. `bentoml serve service:Bench`; BENCH_NETWORK names the file."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator

import bentoml
import numpy
import onnxruntime

TOKENS, PAUSE_S = 100, 0.02


@bentoml.service(workers=1, traffic={"timeout": 60}, logging={"access": {"enabled": False}}, metrics={"enabled": True})
class Bench:
    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(os.environ["BENCH_NETWORK"], options, providers=["CPUExecutionProvider"])

    @bentoml.api
    async def mlp(self, x: list[float]) -> dict[str, list[float]]:
        outputs = self.session.run(["y"], {"x": numpy.array([x], dtype="float32")})
        return {"y": outputs[0][0].tolist()}

    @bentoml.api
    async def stream(self, x: list[float]) -> AsyncGenerator[str, None]:
        clock = asyncio.get_running_loop().time
        began = clock()
        for number in range(TOKENS):
            await asyncio.sleep(began + number * PAUSE_S - clock())
            yield f"data: {json.dumps({'response': f'token{number} '})}\n\n"
