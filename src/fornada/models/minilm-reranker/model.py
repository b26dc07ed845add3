"""A query and texts in, the texts' order out: what stands around MiniLM's weights."""

import numpy as np
import tokenizers

import fornada_sdk
from fornada_sdk import BadRequest

MAX_TEXTS = 100
MAX_TOKENS = 512
"""A longer text is cut: the network has learnt no positions beyond."""
TOKENS_A_CALL = 1024
"""Padded tokens of one call of the network: what bounds its memory (120 MB for two texts of 512)."""


class Model(fornada_sdk.Model):
    def load(self, context):
        self.tokenizer = tokenizers.Tokenizer.from_file(str(context.artifacts["tokenizer.json"]))
        # The file asks for 128 tokens, padded; here texts are cut where the network ends, and padded to their neighbours.
        self.tokenizer.enable_truncation(MAX_TOKENS)
        self.tokenizer.no_padding()

    def run(self, inputs, context):
        query, texts, most = read(inputs.body.json)
        tokens = [encoding.ids for encoding in self.tokenizer.encode_batch([query, *texts])]
        context.usage["input_tokens"] = sum(len(ids) for ids in tokens)
        vectors = self.vectors(tokens)
        scores = vectors[1:] @ vectors[0]
        best = np.argsort(-scores, kind="stable")[:most]
        return {"response": [{"id": int(index), "score": round(float(scores[index]), 6)} for index in best]}

    def vectors(self, tokens):
        """[texts, 384], each of length 1. Texts of like length go through the network together, so that little is padding."""
        made = np.empty((len(tokens), 384), np.float32)
        chunk = []
        for place in [*sorted(range(len(tokens)), key=lambda place: len(tokens[place])), None]:
            if chunk and (place is None or len(tokens[place]) * (len(chunk) + 1) > TOKENS_A_CALL):
                made[chunk] = self.means([tokens[index] for index in chunk])
                chunk = []
            chunk.append(place)
        return made / np.linalg.norm(made, axis=1, keepdims=True)

    def means(self, tokens):
        """The mean of each text's tokens in the network's last layer."""
        shape = (len(tokens), max(len(ids) for ids in tokens))
        ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for row, each in enumerate(tokens):
            ids[row, : len(each)] = each
            mask[row, : len(each)] = 1
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros(shape, np.int64)}
        hidden = self.engine.run(inputs)["last_hidden_state"]
        return (hidden * mask[:, :, np.newaxis]).sum(axis=1) / mask.sum(axis=1, keepdims=True)


def read(value):
    """(query, texts, how many to return) of a request's JSON. Raises BadRequest."""
    if not isinstance(value, dict):
        raise BadRequest('the input must be an object with "query" and "contexts"')
    query, contexts, most = value.get("query"), value.get("contexts"), value.get("top_k")
    if not isinstance(contexts, list) or not 1 <= len(contexts) <= MAX_TEXTS:
        raise BadRequest(f'"contexts" must be a list of 1 to {MAX_TEXTS} objects with "text"')
    texts = [each.get("text") if isinstance(each, dict) else None for each in contexts]
    if not all(isinstance(text, str) and text for text in [query, *texts]):
        raise BadRequest('"query" and the "text" of each of the contexts must be a text of at least one character')
    if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
        raise BadRequest('"top_k" must be a whole number of at least 1')
    try:
        "".join([query, *texts]).encode()
    except UnicodeEncodeError:
        raise BadRequest("a text holds half of a surrogate pair, which is no character") from None
    return query, texts, most
