"""What `fornada doctor` looks at: this machine, without a node.

In: /proc, /sys, the file system, the environment as a mapping, what was seen of the kernel.
Out: Findings: what was seen, whether that is good, what to do about it.
May import: fornada.app.isolation, fornada.keeper.levels, fornada.node.devices, fornada.core and the standard library.
"""
