"""What should be true: the catalogue of models, which version of each is wanted, and the jobs that were accepted.

In: deployments, jobs, settings, what nodes report.
Out: the desired set of models, items for the node; through the ports of `core`.
May import: `telemetry`, `core`, `fornada_sdk.wire`; neither `edge`, `node` nor `store`.
"""
