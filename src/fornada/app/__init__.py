"""The one place where concrete parts meet: settings, wiring, the life of `fornada serve`.

In: the configuration file, the environment, command-line settings.
Out: a running node; signals to the keeper that it started.
May import: everything but `cli`.
"""
