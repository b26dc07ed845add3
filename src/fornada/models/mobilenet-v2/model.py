"""Pictures in, the five likeliest labels out: what stands around MobileNet V2's weights."""

import zipfile

import numpy as np
from PIL import Image

import fornada_sdk

SIDE = 224
BEST = 5


class Model(fornada_sdk.Model):
    def load(self, context):
        # The file carries its labels: a .tflite with metadata is an archive too.
        with zipfile.ZipFile(context.artifacts["mobilenet_v2.tflite"]) as archive:
            self.labels = archive.read("imagenet_labels.txt").decode().splitlines()
        self.input, self.output = self.engine.inputs[0].name, self.engine.outputs[0].name

    def preprocess(self, request, context):
        """The whole picture at the network's size: its bytes are the network's own."""
        image = request.image().resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        return {self.input: np.asarray(image)[np.newaxis]}

    def postprocess(self, outputs, context):
        scores = outputs[self.output][0]
        best = np.argsort(-scores, kind="stable")[:BEST]
        return [{"label": self.labels[index], "score": float(scores[index])} for index in best]
