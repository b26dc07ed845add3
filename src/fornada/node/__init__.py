"""One server: brings the models it has to the state that is wanted, and runs requests on them.

In: the desired set, requests, events of keeper and runners.
Out: commands to the keeper, messages to runners, results, the actual state.
May import: `telemetry`, `core`, `fornada_sdk.wire`; neither `edge`, `control` nor `store`.
"""
