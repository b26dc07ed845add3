"""Pictures in, how likely they are not safe for work out: what stands around OpenNSFW's weights."""

import io

import numpy as np
from PIL import Image

import fornada_sdk

SIDE, CROPPED = 256, 224
MEAN = np.array([104, 117, 123], np.float32)
"""Blue, green, red: of the pictures that the network was trained with."""
LABELS = ("sfw", "nsfw")
"""In the network's order."""


class Model(fornada_sdk.Model):
    def load(self, context):
        self.input, self.output = self.engine.inputs[0].name, self.engine.outputs[0].name

    def preprocess(self, request, context):
        """The middle of the picture at the network's size, once through JPEG as all pictures of its training were."""
        edge = (SIDE - CROPPED) // 2
        image = request.image().resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        file = io.BytesIO()
        image.crop((edge, edge, edge + CROPPED, edge + CROPPED)).save(file, "JPEG")
        with Image.open(file) as stored:
            pixels = np.asarray(stored, np.float32)
        return {self.input: (pixels[:, :, ::-1] - MEAN)[np.newaxis]}

    def postprocess(self, outputs, context):
        scores = dict(zip(LABELS, outputs[self.output][0].tolist(), strict=True))
        return [{"label": label, "score": score} for label, score in sorted(scores.items(), key=lambda item: -item[1])]
