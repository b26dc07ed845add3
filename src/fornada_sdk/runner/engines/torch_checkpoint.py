"""PyTorch weights without a network: what the author's code takes them from, and how what it made of them sleeps."""

from __future__ import annotations

import weakref
from typing import Any

from fornada_sdk.api_context import Context
from fornada_sdk.runner.assignment import Assignment
from fornada_sdk.runner.engines.safetensors_file import read_safetensors


class Checkpoint:
    """`Model.engine` around weights without a network: what the author's `load` takes them from."""

    def __init__(self, path: str, assignment: Assignment, *, device: str) -> None:
        self.path = path
        self.device = device
        """cpu or cuda: where `load_into` puts the network."""
        self._assignment = assignment
        self._networks: list[weakref.ref[Any]] = []
        self._emptied: list[tuple[str, Any]] = []
        """While it sleeps on the cpu: (name in the file, the network's tensor)."""

    def state_dict(self, artifact: str = "") -> dict[str, Any]:
        """The tensors by name, on the CPU; of another `artifact` than the first where it is named. Raises what the reader raises."""
        path = self._assignment.artifacts[artifact] if artifact else self.path
        if path.endswith(".safetensors"):
            return read_safetensors(path)
        import torch

        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        return dict(loaded)

    def load_into(self, network: Any, *, strict: bool = True) -> Any:
        """The network with these weights, on the device, ready for inference; it falls asleep and wakes up with the model as long as the
        author keeps it. Raises RuntimeError where the weights and the network don't fit one another."""
        network.load_state_dict(self.state_dict(), strict=strict)
        placed = network.to(self.device).eval()
        self._networks.append(weakref.ref(placed))
        return placed

    # ---- the ladder

    @property
    def sleeps(self) -> bool:
        """There are networks that were made here. What an author builds from `state_dict` is the author's to put to sleep."""
        return any(network() is not None for network in self._networks)

    def sleep(self, context: Context) -> None:
        """On a card: the networks go to host memory. On the cpu: what the file holds as well is let go of."""
        if self.device == "cpu":
            self._empty()
            return
        import torch

        for network in self._alive():
            network.to("cpu")
        torch.cuda.empty_cache()

    def wake(self, context: Context) -> None:
        """Brings it back, each tensor under the identity that the author's code may hold. Raises what the reader raises."""
        if self.device != "cpu":
            for network in self._alive():
                network.to(self.device)
        elif self._emptied:
            saved = self.state_dict()
            for name, tensor in self._emptied:
                tensor.data = saved[name].to(tensor.dtype, copy=True)
            self._emptied = []

    def _empty(self) -> None:
        import torch

        saved = self.state_dict()
        for network in self._alive():
            for name, tensor in network.state_dict(keep_vars=True).items():
                if isinstance(tensor, torch.Tensor) and name in saved and _is_in(torch, saved[name], tensor):
                    self._emptied.append((name, tensor))
        for _, tensor in self._emptied:
            tensor.data = torch.empty(0, dtype=tensor.dtype)

    def _alive(self) -> list[Any]:
        return [network for each in self._networks if (network := each()) is not None]


def _is_in(torch: Any, saved: Any, tensor: Any) -> bool:
    """The file would bring back what the network has: the author may have changed it since, and that is in no file."""
    return bool(tensor.device.type == "cpu" and saved.shape == tensor.shape and torch.equal(saved.to(tensor.dtype), tensor))
