"""Pictures in, the points of a body out: what stands around MoveNet's weights."""

import numpy as np
from PIL import Image

import fornada_sdk

SIDE = 192
SIDED = ("eye", "ear", "shoulder", "elbow", "wrist", "hip", "knee", "ankle")
NAMES = ["nose", *(f"{side}_{part}" for part in SIDED for side in ("left", "right"))]
"""In the network's order; left and right are the person's own."""


class Model(fornada_sdk.Model):
    def load(self, context):
        self.input, self.output = self.engine.inputs[0].name, self.engine.outputs[0].name

    def run(self, inputs, context):
        image = inputs.image()
        longest = max(image.size)
        edges = [(longest - size) / 2 for size in image.size]
        found = self.engine.run({self.input: squared(image)})[self.output].reshape(len(NAMES), 3)
        points = []
        for name, (y, x, score) in zip(NAMES, found.tolist(), strict=True):
            place = [min(max(share * longest - edge, 0), size) for share, edge, size in zip((x, y), edges, image.size, strict=True)]
            points.append({"name": name, "x": round(place[0], 1), "y": round(place[1], 1), "score": score})
        return {"keypoints": points}


def squared(image):
    """The picture in the middle of a black square of the network's size."""
    width, height = (max(1, round(size * SIDE / max(image.size))) for size in image.size)
    square = Image.new("RGB", (SIDE, SIDE))
    square.paste(image.resize((width, height), Image.Resampling.BILINEAR), ((SIDE - width) // 2, (SIDE - height) // 2))
    return np.asarray(square)[np.newaxis]
