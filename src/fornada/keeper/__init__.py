"""The owner of processes: what must survive a crash of the control plane.

In: orders of a control plane; ends of children.
Out: started and ended processes, their sockets and pidfds.
May import: `fornada_sdk.wire` and the standard library; nothing else of `fornada`.
"""
