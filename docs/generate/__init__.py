"""The reference pages, made from the code they describe: `python -m docs.generate`.

In: fornada's own modules, imported and, for docstrings of attributes, read as text.
Out: docs/reference/*.md; with --check, an exit code.
May import: everything of fornada, and the standard library.
"""
