"""Files in, their kinds out: what stands around Magika's weights."""

import json

import numpy as np

import fornada_sdk

BEST = 5


class Model(fornada_sdk.Model):
    def load(self, context):
        self.config = json.loads(context.artifacts["config.json"].read_text(encoding="utf-8"))
        self.kinds = json.loads(context.artifacts["content_types.json"].read_text(encoding="utf-8"))
        assert not self.config["mid_size"] and not self.config["use_inputs_at_offsets"]

    def run(self, inputs, context):
        return self.run_batch([inputs], context)[0]

    def preprocess(self, request, context):
        """The file's first and last bytes; or the answer, where there are too few for the network."""
        raw = request.file("file")
        if not raw:
            return [{"label": "empty", "score": 1.0}]
        block, padding = self.config["block_size"], self.config["padding_token"]
        first, last = raw[:block].lstrip(), raw[-block:].rstrip()
        if len(first) < self.config["min_file_size_for_dl"]:
            return [{"label": "txt" if is_text(raw[:block]) else "unknown", "score": 1.0}]
        seen = np.full(self.config["beg_size"] + self.config["end_size"], padding, np.int32)
        first, last = first[: self.config["beg_size"]], last[-self.config["end_size"] :]
        seen[: len(first)] = np.frombuffer(first, np.uint8)
        if last:
            seen[-len(last) :] = np.frombuffer(last, np.uint8)
        return seen

    def run_batch(self, batch, context):
        asked = [seen for seen in batch if isinstance(seen, np.ndarray)]
        scores = iter(self.engine.run({"bytes": np.stack(asked)})["target_label"] if asked else ())
        return [self.answer(next(scores)) if isinstance(seen, np.ndarray) else seen for seen in batch]

    def answer(self, scores):
        """The five likeliest kinds. The first becomes "txt" or "unknown" where the network isn't sure enough of it."""
        best = np.argsort(-scores, kind="stable")[:BEST]
        names = [self.config["target_labels_space"][index] for index in best]
        labels = [self.config["overwrite_map"].get(name, name) for name in names]
        least = self.config["thresholds"].get(names[0], self.config["medium_confidence_threshold"])
        if scores[best[0]] < least:
            labels[0] = "txt" if self.kinds[labels[0]]["is_text"] else "unknown"
        return [{"label": label, "score": float(scores[index])} for label, index in zip(labels, best, strict=True)]


def is_text(raw):
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
