"""The probe model's folder, and what writes changed copies of it (`python -m fornada.testing.probe --help`).

In: a name, settings, tables of model.toml.
Out: a model folder to deploy.
May import: `core`.
"""
