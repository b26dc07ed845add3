"""The process of one instance: from the zygote's fork to the last answer.

In: orders and requests from the wire.
Out: answers, output and states on the wire.
May import: `fornada_sdk` and the standard library of Python 3.9.
"""
