"""What a forked child does to itself until it can reach nothing that isn't its own, and the system calls for that.

In: a plan, and the descriptors that it counts: detached mounts, cgroups.
Out: a process behind its walls, or one line that names the step which failed.
May import: the standard library of Python 3.9.
"""
