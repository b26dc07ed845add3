"""Texts in, the likeliest languages out: what stands around py3langid."""

from py3langid.langid import MODEL_FILE, LanguageIdentifier

import fornada_sdk
from fornada_sdk import BadRequest

BEST = 5
READ = 20_000
"""Characters that are looked at: more change nothing, and take time."""


class Model(fornada_sdk.Model):
    def load(self, context):
        self.identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)

    def run(self, inputs, context):
        value = inputs.body.json
        text = value.get("text") if isinstance(value, dict) else None
        if not isinstance(text, str) or not text:
            raise BadRequest('the input must be an object with "text", at least one character')
        return [{"label": label, "score": min(score, 1.0)} for label, score in self.identifier.rank(text[:READ])[:BEST]]
