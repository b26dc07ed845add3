"""What this control plane may decide about processes, while another one takes its place or while it takes another's."""

from dataclasses import dataclass


@dataclass(slots=True)
class Handover:
    """Changed by the manager alone."""

    withdrawn: bool = False
    """Another one decides, or may be about to: requests for what is ready are answered, nothing is begun or ended."""
    replaced: bool = False
    """There is no way back."""
    predecessor: bool = False
    """Another one still answers requests over links of its own: what looks idle from here may be at work."""
