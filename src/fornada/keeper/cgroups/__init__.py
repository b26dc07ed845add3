"""Control groups of version 1 and 2: memory, CPU and processes of each instance, bounded, counted and ended as one.

In: the own cgroup as /proc and the mounted hierarchies show it; names and bounds of groups.
Out: folders below the own cgroup, descriptors of their files, numbers read from them.
May import: the standard library.
"""
