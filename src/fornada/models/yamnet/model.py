"""Recordings in, the likeliest kinds of sound out: what stands around YAMNet's weights."""

import zipfile

import numpy as np
from sound import resampled, wav

import fornada_sdk
from fornada_sdk import BadRequest

WINDOW = 15600
"""Samples that the network hears at once: 0.975 s."""
LONGEST_S = 600
BEST = 5


class Model(fornada_sdk.Model):
    def load(self, context):
        # The file carries its labels: a .tflite with metadata is an archive too.
        with zipfile.ZipFile(context.artifacts["yamnet.tflite"]) as archive:
            self.labels = archive.read("yamnet_label_list.txt").decode().splitlines()
        self.input, self.output = self.engine.inputs[0].name, self.engine.outputs[0].name

    def run(self, inputs, context):
        """The mean of what is heard in windows that cover the recording; the last ends where it ends."""
        samples, rate = wav(inputs.file("audio"))
        if len(samples) > LONGEST_S * rate:
            raise BadRequest(f"the recording takes {len(samples) / rate:.0f} s; at most {LONGEST_S} are heard")
        sound = resampled(samples, rate)
        sound = np.pad(sound, (0, max(0, WINDOW - len(sound))))
        starts = [*range(0, len(sound) - WINDOW, WINDOW), len(sound) - WINDOW]
        windows = [self.engine.run({self.input: sound[start : start + WINDOW]})[self.output][0] for start in starts]
        context.usage["audio_seconds"] = round(len(samples) / rate, 3)
        scores = np.mean(windows, axis=0)
        best = np.argsort(-scores, kind="stable")[:BEST]
        return [{"label": self.labels[index], "score": float(scores[index])} for index in best]
