"""What should be true: the catalogue of models and which version of each is wanted.

In: deployments, settings, what nodes report.
Out: the desired set of models, through the ports of `core`.
May import: `telemetry`, `core`, `fornada_sdk.wire`; neither `edge`, `node` nor `store`.
"""
