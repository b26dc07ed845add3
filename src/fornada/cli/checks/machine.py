"""The machine as files below a root, so that a test can show the checks another one."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the checks may look at."""

    environ: Mapping[str, str]
    data_dir: Path
    root: Path = Path("/")
    uid: int = field(default_factory=os.geteuid)

    def read(self, path: str) -> str | None:
        """The file's text without the white space around it; None where it can't be read."""
        try:
            return self.path(path).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        text = self.read(path)
        return int(text) if text and text.lstrip("-").isdigit() else None

    def exists(self, path: str) -> bool:
        return self.path(path).exists()

    def path(self, path: str) -> Path:
        return self.root / path.lstrip("/")
