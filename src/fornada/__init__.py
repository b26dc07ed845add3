"""The platform: one node, a whole catalogue of models.

In: HTTP requests, model folders, a configuration file.
Out: answers, processes, files under the data directory.
May import: see the folders; this file imports nothing, so that any of them can be imported alone.
"""

__version__ = "0.1.0"
