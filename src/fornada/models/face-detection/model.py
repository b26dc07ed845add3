"""Pictures in, framed faces out: what stands around BlazeFace's weights."""

import numpy as np
from PIL import Image

import fornada_sdk

SIDE = 128
GRIDS = ((16, 2), (8, 6))
"""Cells a side, and boxes a cell, of the network's two grids: 16 * 16 * 2 + 8 * 8 * 6 = 896 boxes in that order."""
LEAST_SCORE = 0.5
SAME = 0.3
"""Boxes that share more than this of their union are one face."""
LARGEST_LOGIT = 80.0
"""Its exponential is still a float32."""


class Model(fornada_sdk.Model):
    def load(self, context):
        self.centres = np.concatenate([centres(cells, boxes) for cells, boxes in GRIDS])
        self.least = float(context.settings.get("least_score", LEAST_SCORE))

    def run(self, inputs, context):
        image = inputs.image()
        longest = max(image.size)
        found = self.engine.run({"input": squared(image)})
        scores = 1 / (1 + np.exp(-found["classificators"][0, :, 0].clip(-LARGEST_LOGIT, LARGEST_LOGIT)))
        regressed = found["regressors"][0, :, :4] / SIDE  # centre from the cell's, width, height, as shares of the square
        centre, half = self.centres + regressed[:, :2], regressed[:, 2:4] / 2
        boxes = np.concatenate([centre - half, centre + half], axis=1)
        edges = [(longest - size) / 2 for size in image.size]
        return [described(box * longest, score, edges, image.size) for box, score in joined(boxes, scores, self.least)]


def centres(cells, boxes):
    """Centres of a grid's boxes [cells * cells * boxes, 2], x and y, as shares of the square."""
    line = (np.arange(cells) + 0.5) / cells
    y, x = np.meshgrid(line, line, indexing="ij")
    return np.repeat(np.stack([x, y], axis=-1).reshape(-1, 2), boxes, axis=0)


def squared(image):
    """The picture in the middle of a black square of the network's size, -1 to 1."""
    width, height = (max(1, round(size * SIDE / max(image.size))) for size in image.size)
    square = Image.new("RGB", (SIDE, SIDE))
    square.paste(image.resize((width, height), Image.Resampling.BILINEAR), ((SIDE - width) // 2, (SIDE - height) // 2))
    return np.asarray(square, np.float32)[np.newaxis] / 127.5 - 1


def joined(boxes, scores, least):
    """(box, score) of each face, best first. Boxes of the same face become their mean, weighted by score, as the authors do it."""
    left = [index for index in np.argsort(-scores, kind="stable") if scores[index] >= least]
    while left:
        same = [index for index in left if index == left[0] or overlap(boxes[left[0]], boxes[index]) > SAME]
        yield np.average(boxes[same], axis=0, weights=scores[same]), scores[left[0]]
        left = [index for index in left if index not in same]


def overlap(one, other):
    """Shared area over the union's."""
    shared = np.clip(np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2]), 0, None).prod()
    union = (one[2:] - one[:2]).prod() + (other[2:] - other[:2]).prod() - shared
    return shared / union if union > 0 else 0.0


def described(box, score, edges, size):
    """`box` is left, top, right, bottom in pixels of the square; `edges` are the black ones left and above."""
    places = [round(min(max(float(box[side]) - edges[side % 2], 0), size[side % 2])) for side in range(4)]
    return {"label": "face", "score": float(score), "box": dict(zip(("xmin", "ymin", "xmax", "ymax"), places, strict=True))}
