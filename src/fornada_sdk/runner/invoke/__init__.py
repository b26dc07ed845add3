"""The ways to run model code: inline on the main thread, on several threads, or on an asyncio loop.

In: calls from the session's inbox.
Out: their answers, by the session.
May import: `fornada_sdk` and the standard library of Python 3.9.
"""
