"""The platform: one node, a whole catalogue of models.

In: HTTP requests, model folders, a configuration file.
Out: answers, processes, files under the data directory.
May import: see the folders; this file imports nothing of ours, so that any of them can be imported alone.
"""

import sys

# Wherever it can, httpx imports its own command line with rich and pygments: more than all the rest of a control plane's packages.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]

__version__ = "0.1.0"
