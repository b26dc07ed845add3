"""Sentences in, vectors of length 1 out: what stands around MiniLM's weights."""

from typing import NamedTuple

import numpy as np
import tokenizers

import fornada_sdk
from fornada_sdk import BadRequest

MAX_TEXTS = 100
MAX_TOKENS = 512
"""A longer text is cut: the network has learnt no positions beyond."""
TOKENS_A_CALL = 1024
"""Padded tokens of one call of the network: what bounds its memory (120 MB for two texts of 512)."""
POOLINGS = ("mean", "cls")
DECIMALS = 8
"""Of a number in the answer: what float32 holds of one near 0.1."""


class Texts(NamedTuple):
    tokens: list
    """Ids of each text."""
    pooling: str


class Vectors(NamedTuple):
    rows: list
    """An array of 384 for each text."""
    pooling: str


class Model(fornada_sdk.Model):
    def load(self, context):
        self.tokenizer = tokenizers.Tokenizer.from_file(str(context.artifacts["tokenizer.json"]))
        # The file asks for 128 tokens, padded; here texts are cut where the network ends, and padded to their neighbours.
        self.tokenizer.enable_truncation(MAX_TOKENS)
        self.tokenizer.no_padding()

    def preprocess(self, request, context):
        texts, pooling = read(request.body.json)
        tokens = [encoding.ids for encoding in self.tokenizer.encode_batch(texts)]
        context.usage["input_tokens"] = sum(len(ids) for ids in tokens)
        return Texts(tokens, pooling)

    def run(self, inputs, context):
        return self.run_batch([inputs], context)[0]

    def run_batch(self, batch, context):
        """Texts of like length go through the network together, whosever they are."""
        vectors = [Vectors([None] * len(texts.tokens), texts.pooling) for texts in batch]
        for chunk in chunks(batch):
            hidden, mask = self._hidden([batch[request].tokens[row] for request, row in chunk])
            means = (hidden * mask[:, :, np.newaxis]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
            for place, (request, row) in enumerate(chunk):
                vectors[request].rows[row] = means[place] if batch[request].pooling == "mean" else hidden[place, 0]
        return vectors

    def postprocess(self, outputs, context):
        data = np.stack(outputs.rows).astype(np.float64)
        data = (data / np.linalg.norm(data, axis=1, keepdims=True)).round(DECIMALS)
        return {"shape": list(data.shape), "data": data.tolist(), "pooling": outputs.pooling}

    def _hidden(self, tokens):
        """(last hidden state [texts, longest, 384], mask [texts, longest])"""
        shape = (len(tokens), max(len(ids) for ids in tokens))
        ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for row, each in enumerate(tokens):
            ids[row, : len(each)] = each
            mask[row, : len(each)] = 1
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros(shape, np.int64)}
        return self.engine.run(inputs)["last_hidden_state"], mask.astype(np.float32)


def read(value):
    """(texts, pooling) of a request's JSON. Raises BadRequest."""
    if not isinstance(value, dict):
        raise BadRequest('the input must be an object with "text"')
    texts = value.get("text")
    texts = [texts] if isinstance(texts, str) else texts
    if not isinstance(texts, list) or not 1 <= len(texts) <= MAX_TEXTS:
        raise BadRequest(f'"text" must be a text or a list of 1 to {MAX_TEXTS} texts')
    if not all(isinstance(text, str) and text for text in texts):
        raise BadRequest('each "text" must be a text of at least one character')
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        raise BadRequest('"text" holds half of a surrogate pair, which is no character') from None
    pooling = value.get("pooling") or "mean"
    if pooling not in POOLINGS:
        raise BadRequest(f'"pooling" must be one of {", ".join(POOLINGS)}')
    return texts, pooling


def chunks(batch):
    """[(request, row)] for each call of the network: texts sorted by length, so that little is padding."""
    lengths = sorted((len(ids), request, row) for request, texts in enumerate(batch) for row, ids in enumerate(texts.tokens))
    chunk = []
    for length, request, row in lengths:
        if chunk and length * (len(chunk) + 1) > TOKENS_A_CALL:
            yield chunk
            chunk = []
        chunk.append((request, row))
    yield chunk
