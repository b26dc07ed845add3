"""The `fornada` command.

In: arguments, `FORNADA_*` variables, answers of a node's API.
Out: API requests, text or JSON for the terminal, an exit code.
May import: everything below `app`, and `app` itself for `serve`.
"""
