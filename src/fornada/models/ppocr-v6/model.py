"""Pictures in, the lines of text on them out: what stands around rapidocr."""

import os

import cv2
import numpy as np
import rapidocr

import fornada_sdk

LONGEST_SIDE = 960
"""To which larger pictures are made smaller before text is looked for; without this bound small ones would be enlarged, at ten
times the cost."""
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
        pixels = np.ascontiguousarray(np.asarray(image)[:, :, ::-1])  # blue, green, red, as OpenCV has it
        found = self.reader(pixels)
        if found.txts is None:
            return {"text": "", "lines": []}
        lines = [
            {"text": text, "score": float(score), "box": [place(corner, image.size) for corner in box]}
            for text, score, box in zip(found.txts, found.scores, found.boxes, strict=True)
        ]
        return {"text": "\n".join(line["text"] for line in lines), "lines": lines}


def place(corner, size):
    """[x, y] in whole pixels of the picture."""
    return [round(min(max(float(number), 0), most)) for number, most in zip(corner, size, strict=True)]
