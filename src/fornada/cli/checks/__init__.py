"""What `fornada doctor` looks at: this machine, without a node.

In: /proc, /sys, the file system, the environment as a mapping.
Out: Findings: what was seen, whether that is good, what to do about it.
May import: fornada.node.devices, fornada.core and the standard library.
"""
