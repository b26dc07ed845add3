"""Pictures in, a mask of the people in them out: what stands around MediaPipe's selfie segmentation."""

import base64
import io

import numpy as np
from PIL import Image

import fornada_sdk

SIDE = 256
LABELS = ["background", "person"]


class Model(fornada_sdk.Model):
    def load(self, context):
        self.input, self.output = self.engine.inputs[0].name, self.engine.outputs[0].name

    def run(self, inputs, context):
        image = inputs.image()
        pixels = np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR), np.float32) / 255
        shares = self.engine.run({self.input: pixels[np.newaxis]})[self.output][0, :, :, 0]
        # The network's mask is soft: brought to the picture's size before it is decided, its edge has no steps.
        soft = Image.fromarray(np.rint(shares * 255).astype(np.uint8)).resize(image.size, Image.Resampling.BILINEAR)
        mask = soft.point([0] * 128 + [1] * 128)
        return {"width": image.width, "height": image.height, "labels": LABELS, "mask": png(mask)}


def png(mask):
    """A picture of 8 bits a pixel as PNG in base64."""
    file = io.BytesIO()
    mask.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()
