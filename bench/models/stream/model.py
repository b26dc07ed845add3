"""100 tokens at 50 a second, each at its own time, so that a late one doesn't delay the next."""

import asyncio

import fornada_sdk

TOKENS, PAUSE_S = 100, 0.02


class Model(fornada_sdk.Model):
    async def run(self, inputs, context):
        clock = asyncio.get_running_loop().time
        began = clock()
        for number in range(TOKENS):
            await asyncio.sleep(began + number * PAUSE_S - clock())
            yield {"response": f"token{number} "}
