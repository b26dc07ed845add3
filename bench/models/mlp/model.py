"""784 -> 32 -> 10 in numpy; what waits at the same time is one matrix product."""

import numpy

import fornada_sdk


class Model(fornada_sdk.Model):
    def load(self, context):
        chance = numpy.random.default_rng(1)
        self.first = chance.standard_normal((784, 32), dtype="float32")
        self.second = chance.standard_normal((32, 10), dtype="float32")

    def preprocess(self, request, context):
        return request.body.json["x"]

    def run(self, inputs, context):
        return self.run_batch([inputs], context)[0]

    def run_batch(self, batch, context):
        hidden = numpy.maximum(numpy.array(batch, dtype="float32") @ self.first, 0)
        return [{"y": row} for row in (hidden @ self.second).tolist()]
