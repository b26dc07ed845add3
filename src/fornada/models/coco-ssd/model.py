"""Pictures in, framed things out: what stands around SSD MobileNet V1's weights."""

import zipfile

import numpy as np
from PIL import Image

import fornada_sdk

SIDE = 300
LEAST_SCORE = 0.5
"""What is found with less is more often wrong than right."""


class Model(fornada_sdk.Model):
    def load(self, context):
        # The file carries its labels: a .tflite with metadata is an archive too.
        with zipfile.ZipFile(context.artifacts["coco_ssd.tflite"]) as archive:
            self.labels = archive.read("labelmap.txt").decode().splitlines()
        self.least = float(context.settings.get("least_score", LEAST_SCORE))
        self.input = self.engine.inputs[0].name
        self.outputs = [info.name for info in self.engine.outputs]

    def run(self, inputs, context):
        image = inputs.image()
        pixels = np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR))
        found = self.engine.run({self.input: pixels[np.newaxis]})
        boxes, kinds, scores, count = (found[name][0] for name in self.outputs)
        seen = [index for index in np.argsort(-scores[: int(count)], kind="stable") if scores[index] >= self.least]
        return [self.described(kinds[index], scores[index], boxes[index], image.size) for index in seen]

    def described(self, kind, score, box, size):
        """`box` is top, left, bottom and right as shares of the picture, and may reach over its edges."""
        top, left, bottom, right = (min(max(float(share), 0.0), 1.0) for share in box)
        width, height = size
        pixels = {"xmin": left * width, "ymin": top * height, "xmax": right * width, "ymax": bottom * height}
        return {"label": self.labels[int(kind)], "score": float(score), "box": {name: round(value) for name, value in pixels.items()}}
