"""Pictures in, a mask of class indices out: what stands around DeepLab V3's weights."""

import base64
import io

import numpy as np
from PIL import Image

import fornada_sdk

SIDE = 513
LABELS = [
    *("background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
]
"""Of PASCAL VOC, in the order of its class indices."""


class Model(fornada_sdk.Model):
    def load(self, context):
        self.input, self.output = self.engine.inputs[0].name, self.engine.outputs[0].name

    def run(self, inputs, context):
        image = inputs.image()
        pixels = np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR))
        kinds = self.engine.run({self.input: pixels[np.newaxis]})[self.output][0]
        mask = Image.fromarray(kinds.astype(np.uint8)).resize(image.size, Image.Resampling.NEAREST)
        return {"width": image.width, "height": image.height, "labels": LABELS, "mask": png(mask)}


def png(mask):
    """A picture of 8 bits a pixel as PNG in base64."""
    file = io.BytesIO()
    mask.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()
