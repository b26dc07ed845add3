"""The catalogue that ships with the package: one folder per model, data to this package.

In: nothing: no module of `fornada` imports a model.
Out: folders with model.toml, code and request, read as files.
May import: nothing; each model's code runs in its own environment only.
"""
