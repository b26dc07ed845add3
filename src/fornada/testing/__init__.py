"""Tools for testing, ours and our users': the probe model and named faults.

In: settings of a test.
Out: model folders to deploy.
May import: `core`, `fornada_sdk`; only tests import it.
"""
