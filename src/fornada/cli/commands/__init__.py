"""The commands, one file each, named as they are typed.

In: parsed arguments, a Node (the client of a node's API) where the command needs one.
Out: text or JSON on stdout, progress and complaints on stderr.
May import: fornada.cli, and fornada.app where a command works without a node. Nothing slow before the command runs.
"""
