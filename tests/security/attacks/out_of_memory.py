"""What is told of models that take more memory than they may: one while it answers, one while it loads.

Arguments: the folder to work in, the isolation level, the uid of the node (-1: the one who asks). Prints JSON.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.harness.bundles import archive
from tests.harness.node import NodeFailed, admin_path
from tests.security.attacks.campaign import Campaign
from tests.security.attacks.runs import UNAVAILABLE

ANSWERING, LOADING = "@attack/answering", "@attack/loading"
TOML = '[resources]\ndevice = "cpu"\nmemory = "96MiB"\n'
TAKES = """
import mmap
import time

def take():
    held = []
    for _ in range(20):
        held.append(mmap.mmap(-1, 16 << 20))
        held[-1].write(b"x" * (16 << 20))
    time.sleep(10)
"""
"""Where no cgroup bounds it, somebody looks now and then: what is back before that was never too much."""
ANSWERS = TAKES + "def handle_request(request, context):\n    take() if request.body.json['take'] else None\n    return 'well'\n"
LOADS = TAKES + "take()\n\ndef handle_request(request, context):\n    return 'well'\n"


def main() -> None:
    folder, level, uid = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    campaign = Campaign(folder, level, uid)
    node = campaign.node
    try:
        node.start()
    except NodeFailed as error:
        node.destroy()
        if "isolation" not in str(error):
            raise
        print(str(error).replace("\n", " | "), file=sys.stderr)
        os._exit(UNAVAILABLE)
    try:
        told: dict[str, Any] = {}
        node.deploy(ANSWERING, archive({"model.toml": TOML, "model.py": ANSWERS}))
        node.put(LOADING, archive({"model.toml": TOML, "model.py": LOADS}))
        for name in (ANSWERING, LOADING):
            answer = node.run(name, {"take": True}, timeout_s=30)
            told[name] = {
                "answer": (answer.status, answer.code, answer.message),
                "why": node.model(name)["why"],
                "failure": node.fetch("GET", f"{admin_path(name)}/why").json()["last_failure"],
            }
        told["again"] = node.ask(ANSWERING, {"take": False})
        log = (node.data_dir / "logs" / "node.log").read_text().splitlines()
        told["ended"] = [entry for entry in map(json.loads, log) if entry["event"] == "instance.ended"]
        print(json.dumps(told), flush=True)
    finally:
        campaign.close()


if __name__ == "__main__":
    main()
