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
    keeper_lost: bool = False
    """Nothing can be begun or ended any more, and this control plane is about to end."""
    closed: bool = False
    """What lives has been let go and may be another one's: whatever is still heard of it changes nothing here."""

    @property
    def hands_off(self) -> str:
        """Why nothing is begun or ended here, in words for callers; empty: this control plane decides."""
        if self.keeper_lost:
            return "the node has lost the process that starts its models, and has to begin anew"
        return "the node is being upgraded" if self.withdrawn else ""
