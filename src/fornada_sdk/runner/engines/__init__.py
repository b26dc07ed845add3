"""One file per way to execute weights.

In: a loaded artifact, inputs.
Out: outputs.
May import: `fornada_sdk`, and inside `load` the libraries of the model's environment.
"""
