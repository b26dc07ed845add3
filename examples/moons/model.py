"""What stands around the network: points in, labels out. The engine has loaded model.onnx, which lies in this folder."""

import numpy as np

import fornada_sdk

LABELS = ("upper", "lower")
MOST = 1000


class Model(fornada_sdk.Model):
    def preprocess(self, request, context):
        points = request.body.json.get("points")
        if not isinstance(points, list) or not 1 <= len(points) <= MOST:
            raise fornada_sdk.BadRequest(f'"points" must be a list of 1 to {MOST} pairs of numbers')
        try:
            array = np.asarray(points, dtype=np.float32)
        except (TypeError, ValueError):
            array = np.empty(0)
        if array.ndim != 2 or array.shape[1] != 2 or not np.isfinite(array).all():
            raise fornada_sdk.BadRequest('each of "points" must be two finite numbers')
        return {"point": array}

    def run_batch(self, batch, context):
        return self.engine.run_batch(batch)

    def postprocess(self, outputs, context):
        answer = []
        for shares in outputs["share"]:
            best = int(shares.argmax())
            answer.append({"label": LABELS[best], "score": round(float(shares[best]), 4)})
        return answer
