"""Pictures in, the lines of text on them out: what stands around rapidocr."""

import os

import cv2
import numpy as np
import rapidocr
from PIL import Image

import fornada_sdk

LONGEST_SIDE = 960
"""To which larger pictures are made smaller before text is looked for; without this bound small ones would be enlarged, at ten
times the cost."""
LARGEST_SIDE = 2000
"""Of the picture that lines are cut from and read, which is more detailed than the one in which they are looked for."""
THREADS = int(os.environ.get("OMP_NUM_THREADS") or 2)
"""As [resources] says: the node sets the variable from it."""


class Model(fornada_sdk.Model):
    def load(self, context):
        cv2.setNumThreads(THREADS)
        self.reader = rapidocr.RapidOCR(
            params={
                "Global.use_cls": False,  # it looks for lines upside down, and takes some that aren't for such
                "Global.log_level": "error",
                "Det.limit_type": "max",
                "Det.limit_side_len": LONGEST_SIDE,
                "EngineConfig.onnxruntime.intra_op_num_threads": THREADS,
                "EngineConfig.onnxruntime.inter_op_num_threads": 1,
            }
        )

    def run(self, inputs, context):
        image = inputs.image()
        size = image.size
        if max(size) > LARGEST_SIDE:  # reading small print of larger ones would take more memory than it is worth
            image = image.resize([max(1, side * LARGEST_SIDE // max(size)) for side in size], Image.Resampling.BICUBIC)
        pixels = np.ascontiguousarray(np.asarray(image)[:, :, ::-1])  # blue, green, red, as OpenCV has it
        found = self.reader(pixels)
        if found.txts is None:
            return {"text": "", "lines": []}
        lines = [
            {"text": text, "score": float(score), "box": [place(corner, image.size, size) for corner in box]}
            for text, score, box in zip(found.txts, found.scores, found.boxes, strict=True)
        ]
        return {"text": "\n".join(line["text"] for line in lines), "lines": lines}


def place(corner, seen, size):
    """[x, y] of a corner on the picture as it was seen, in whole pixels of the picture itself."""
    return [round(min(max(float(at) / side, 0), 1) * most) for at, side, most in zip(corner, seen, size, strict=True)]
