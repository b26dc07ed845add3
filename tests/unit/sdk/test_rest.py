"""Weights that lie in files leave a resting runner's memory, and nothing else does."""

import mmap
import os
from pathlib import Path

from fornada_sdk.runner.rest import give_back

SIZE = 8 * 1024 * 1024


def weights(folder: Path, name: str = "weights") -> Path:
    path = folder / name
    path.write_bytes(os.urandom(SIZE))
    return path


def mapped(path: Path, *, flags: int = mmap.MAP_SHARED, prot: int = mmap.PROT_READ) -> mmap.mmap:
    """All of it, touched."""
    with path.open("rb") as file:
        found = mmap.mmap(file.fileno(), 0, flags=flags, prot=prot)
    assert sum(found[at] for at in range(0, SIZE, 4096)) > 0
    return found


def resident(path: Path) -> int:
    """Bytes of the file that this process has mapped at the moment."""
    total, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and ":" not in words[0]:
            ours = line.endswith(str(path))
        elif ours and words[0] == "Rss:":
            total += int(words[1]) * 1024
    return total


def test_mapped_weights_go_and_come_back_as_they_were(tmp_path: Path):
    path = weights(tmp_path)
    for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
        with mapped(path, flags=flags) as held:
            assert resident(path) == SIZE
            assert give_back([str(path)]) == SIZE
            assert resident(path) == 0
            assert held[:] == path.read_bytes()
            assert give_back([str(tmp_path)]) == SIZE


def test_what_others_have_mapped_and_what_can_be_written_stays(tmp_path: Path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model-2").mkdir()
    beside = weights(tmp_path / "model-2")
    ours = weights(tmp_path / "model")
    with mapped(beside) as _, mapped(ours, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE) as changed:
        changed[0:4] = b"mine"
        before = resident(beside), resident(ours)
        assert before[1] > SIZE / 2
        assert give_back([str(tmp_path / "model")]) == 0
        assert (resident(beside), resident(ours)) == before
        assert changed[0:4] == b"mine"


def test_pages_that_no_file_could_bring_back_stay(tmp_path: Path):
    import ctypes

    path = weights(tmp_path)
    with path.open("rb") as file:
        changed = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    changed[4096:4100] = b"mine"
    address = ctypes.addressof(ctypes.c_char.from_buffer(changed))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), ctypes.c_size_t(SIZE), mmap.PROT_READ) == 0
    assert give_back([str(path)]) == 0
    assert changed[4096:4100] == b"mine"


def test_a_link_to_the_weights_is_as_good(tmp_path: Path):
    path = weights(tmp_path)
    (tmp_path / "link").symlink_to(path)
    with mapped(path):
        assert give_back([str(tmp_path / "link")]) == SIZE


def test_without_mapped_weights_there_is_nothing_to_do(tmp_path: Path):
    assert give_back([]) == 0
    assert give_back([str(tmp_path), "/no/such/file"]) == 0
