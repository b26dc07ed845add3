"""What nobody waits for gets on disk all the same, several changes at once."""

import threading

from fornada.store.late_sync import LateSync
from tests.bounds import bound


class Disk:
    def __init__(self) -> None:
        self.synced = 0
        self.came = threading.Semaphore(0)

    def sync(self, descriptor: int) -> None:
        assert descriptor > 2
        self.synced += 1
        self.came.release()


def test_what_was_asked_for_comes_and_what_was_asked_meanwhile_comes_with_it(tmp_path):
    (tmp_path / "file").write_text("content")
    disk = Disk()
    late = LateSync(tmp_path / "file", sync=disk.sync, delay_s=0.2)
    for _ in range(100):
        late.soon()
    assert disk.came.acquire(timeout=bound(10))
    assert disk.synced == 1
    late.soon()
    assert disk.came.acquire(timeout=bound(10))
    late.close()


def test_the_end_waits_for_what_was_asked_for_and_not_for_the_delay(tmp_path):
    (tmp_path / "file").write_text("content")
    disk = Disk()
    late = LateSync(tmp_path / "file", sync=disk.sync, delay_s=3600)
    late.soon()
    late.close()
    assert disk.synced >= 1


def test_a_file_that_is_not_there_is_nothing_to_complain_of(tmp_path):
    late = LateSync(tmp_path / "none", delay_s=0)
    late.soon()
    late.close()


def test_nothing_asked_for_is_no_thread(tmp_path):
    LateSync(tmp_path / "file").close()
    assert not [thread for thread in threading.enumerate() if thread.name == "fornada-late-sync"]
