"""A model that yields is a stream: the caller sees each item when it is made, or all of them as a list."""

import asyncio

import fornada_sdk

FARTHEST = 100


class Model(fornada_sdk.Model):
    def load(self, context):
        self.pause_s = float(context.settings["pause_s"])

    def preprocess(self, request, context):
        start = request.body.json.get("from", 3)
        if not isinstance(start, int) or not 0 <= start <= FARTHEST:
            raise fornada_sdk.BadRequest(f'"from" must be a whole number from 0 to {FARTHEST}')
        return start

    async def run(self, inputs, context):
        for number in range(inputs, 0, -1):
            yield {"response": f"{number} "}
            await asyncio.sleep(self.pause_s)
        yield {"response": "lift-off"}
