"""Texts in, how well or badly they are meant out: what stands around VADER."""

from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

import fornada_sdk
from fornada_sdk import BadRequest

READ = 10_000
"""Characters that are looked at: its rules take time that grows with the square of a sentence's length."""


class Model(fornada_sdk.Model):
    def load(self, context):
        self.analyzer = SentimentIntensityAnalyzer()

    def run(self, inputs, context):
        value = inputs.body.json
        text = value.get("text") if isinstance(value, dict) else None
        if not isinstance(text, str) or not text:
            raise BadRequest('the input must be an object with "text", at least one character')
        compound = self.analyzer.polarity_scores(text[:READ])["compound"]  # -1: as bad as can be, 1: as good
        positive = round((compound + 1) / 2, 6)
        return [{"label": "NEGATIVE", "score": round(1 - positive, 6)}, {"label": "POSITIVE", "score": positive}]
