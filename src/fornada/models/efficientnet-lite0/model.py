"""Pictures in, the five likeliest labels out: what stands around EfficientNet-Lite0's weights."""

from pathlib import Path

import numpy as np
from PIL import Image

import fornada_sdk

SIDE = 224
BEST = 5


class Model(fornada_sdk.Model):
    def load(self, context):
        self.labels = (Path(__file__).parent / "labels.txt").read_text(encoding="utf-8").splitlines()

    def preprocess(self, request, context):
        """The middle square of the picture at the network's size, as the weights were evaluated by their authors."""
        image = request.image()
        side = min(image.size)
        left, top = ((size - side) / 2 for size in image.size)
        image = image.resize((SIDE, SIDE), Image.Resampling.BICUBIC, box=(left, top, left + side, top + side))
        return {"image": np.asarray(image)[np.newaxis]}

    def postprocess(self, outputs, context):
        scores = outputs["scores"][0]
        best = np.argsort(scores)[: -BEST - 1 : -1]
        return [{"label": self.labels[index], "score": float(scores[index])} for index in best]
