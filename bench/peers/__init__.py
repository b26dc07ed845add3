"""The peers to compare with. Each will bring a server here and a lock of its own; until then it is reported as missing, never skipped in silence."""

import importlib.util

PEERS = {"litserve": "LitServe", "bentoml": "BentoML", "mlserver": "MLServer", "ray.serve": "Ray Serve", "kserve": "KServe SDK"}
BINARIES = {"tritonserver": "Triton"}


def missing() -> list[str]:
    """One line for each peer that can't be measured here, with the reason."""
    lines = []
    for module, title in PEERS.items():
        try:
            found = importlib.util.find_spec(module)
        except ModuleNotFoundError:
            found = None
        lines.append(f"{title}: {'not measured yet: bench has no server for it' if found else 'not installed'}")
    lines += [f"{title}: not installed" for title in BINARIES.values()]
    return lines
