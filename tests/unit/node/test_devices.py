"""What this server has, and the device that isn't there."""

# Instants are plain numbers here.
# mypy: disable-error-code="arg-type"

import pytest

from fornada.core.errors import BadRequest
from fornada.core.settings import CpuSettings, DevicesSettings, FakeDeviceSettings
from fornada.node.devices import inventory
from fornada.node.devices.cpu import Host, cgroup_memory

GIB = 1024**3


def devices(**fake):
    return inventory(DevicesSettings(cpu=CpuSettings(budget="2GiB"), fake=[FakeDeviceSettings(**fake)]))


def used(devices, now=0.0):
    return devices.views(charged={}, now=now)[1]["used_bytes"]


def book(devices, instance, gib, *, now=0.0, release_delay_s=0.0):
    return devices.book(instance, "cuda:0", gib * GIB, release_delay_s=release_delay_s, now=now)


def test_a_booking_beyond_what_is_free_is_refused_with_both_numbers():
    fake = devices(foreign="1GiB")
    assert book(fake, "a", 5) == ""
    assert book(fake, "b", 3) == "cuda:0 has 2 GiB free of 8 GiB, 3 GiB were asked for"
    assert (fake.held("a", "cuda:0"), fake.held("b", "cuda:0")) == (5 * GIB, 0)


def test_what_was_booked_comes_back_when_the_process_is_gone_and_the_delay_is_over():
    fake = devices(release_delay_ms=3000)
    book(fake, "a", 5)
    fake.ended("a", now=10.0)
    assert (used(fake, 12.9), fake.next_release(now=12.9)) == (5 * GIB, 13.0)
    assert fake.rooms(charged={}, now=12.9)[1].lingering_bytes == 5 * GIB
    assert (used(fake, 13.0), fake.next_release(now=13.0)) == (0, float("inf"))


def test_a_model_may_ask_for_a_longer_delay():
    fake = devices()
    book(fake, "a", 1, release_delay_s=2.0)
    fake.ended("a", now=0.0)
    assert [used(fake, now) for now in (1.9, 2.0)] == [GIB, 0]


def test_many_small_bookings_of_one_instance_cost_no_memory_and_no_time():
    fake = devices()
    for _ in range(20_000):
        assert fake.book("a", "cuda:0", 1, release_delay_s=0.0, now=0.0) == ""
        assert fake.book("a", "cuda:0", 0, release_delay_s=0.0, now=0.0) == ""
    assert used(fake) == 20_000
    said = {fake.book("a", "cuda:0", 1, release_delay_s=number / 10, now=0.0) for number in range(1000)}
    assert len(said) == 2
    fake.ended("a", now=0.0)
    assert used(fake, 1000.0) == 0


def test_a_frozen_device_gives_nothing_back_until_it_thaws():
    fake = devices(release_delay_ms=1000)
    fake.patch("cuda:0", {"frozen": True}, now=0.0)
    book(fake, "a", 5)
    fake.ended("a", now=0.0)
    assert used(fake, 1000.0) == 5 * GIB
    fake.patch("cuda:0", {"frozen": False}, now=1000.0)
    assert [used(fake, now) for now in (1000.5, 1001.0)] == [5 * GIB, 0]


def test_clear_undoes_every_change():
    fake = devices(foreign="1GiB", release_delay_ms=5)
    before = fake.views(charged={}, now=0.0)[1]
    fake.patch("cuda:0", {"foreign": "6GiB", "frozen": True, "release_delay_ms": 700, "xid": 79}, now=0.0)
    changed = fake.views(charged={}, now=0.0)[1]
    assert (changed["foreign_bytes"], changed["state"], changed["release_delay_ms"]) == (6 * GIB, "fenced", 700)
    fake.patch("cuda:0", {"clear": True}, now=0.0)
    assert fake.views(charged={}, now=0.0)[1] == before


def test_a_fault_of_the_card_fences_it_and_a_fault_of_a_program_does_not():
    fake = devices()
    fake.patch("cuda:0", {"xid": 31}, now=0.0)
    assert not fake.rooms(charged={}, now=0.0)[1].fenced
    fake.patch("cuda:0", {"xid": 79}, now=0.0)
    assert fake.rooms(charged={}, now=0.0)[1].fenced
    assert book(fake, "a", 1) == "cuda:0 is fenced after XID 79: it has fallen off the bus"
    fake.patch("cuda:0", {"unfence": True}, now=0.0)
    assert book(fake, "a", 1) == ""


@pytest.mark.parametrize(
    "change",
    [{"foriegn": 1}, {"foreign": "9GiB"}, {"foreign": "much"}, {"frozen": 1}, {"release_delay_ms": -1}, {"xid": 0}, {"xid": "79"}],
)
def test_a_change_that_makes_no_sense_is_refused_as_a_whole(change):
    fake = devices()
    before = fake.views(charged={}, now=0.0)[1]
    with pytest.raises(BadRequest):
        fake.patch("cuda:0", {"foreign": 5, **change} if "foreign" not in change else change, now=0.0)
    assert fake.views(charged={}, now=0.0)[1] == before


def test_unknown_devices_and_the_cpu_take_no_changes():
    fake = devices()
    with pytest.raises(BadRequest, match="no device 'cuda:7'; this node has: cpu, cuda:0"):
        fake.patch("cuda:7", {}, now=0.0)
    with pytest.raises(BadRequest, match="cpu"):
        fake.patch("cpu", {}, now=0.0)


def test_what_an_adopted_process_holds_is_counted():
    fake = devices()
    fake.take_over("a", {"cuda:0": 2 * GIB, "cuda:9": 1})
    assert used(fake) == 2 * GIB
    fake.ended("a", now=0.0)
    assert used(fake) == 0


def test_a_reserve_holds_on_fake_devices_only_when_it_is_set():
    assert devices().rooms(charged={}, now=0.0)[1].total_bytes == 8 * GIB
    fake = inventory(DevicesSettings(reserve="25%", fake=[FakeDeviceSettings()]))
    assert fake.rooms(charged={}, now=0.0)[1].total_bytes == 6 * GIB


def machine(root, *, total_kib=16 * 1024**2, cgroup="0::/\n", **files):
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal: {total_kib} kB\nMemAvailable: {total_kib // 2} kB\n")
    (root / "proc/self/cgroup").write_text(cgroup)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Host(budget_bytes=0, reserve_share=0.0, reserve_bytes=0, root=root)


def test_host_memory_is_the_machines_where_no_cgroup_bounds_it(tmp_path):
    assert machine(tmp_path, **{"memory.max": "max\n"}).total_bytes == 16 * GIB


def test_the_tightest_cgroup_on_the_way_up_bounds_host_memory(tmp_path):
    host = machine(tmp_path, cgroup="0::/a/b\n", **{"a/b/memory.max": "max", "a/memory.max": str(3 * GIB), "a/memory.current": "7"})
    assert host.total_bytes == 3 * GIB
    assert cgroup_memory(tmp_path) == [(3 * GIB, 7)]
    assert host.view(now=0.0)["foreign_bytes"] == 7


def test_the_older_kind_of_cgroup_is_understood_too(tmp_path):
    host = machine(
        tmp_path,
        cgroup="4:cpu,memory:/box\n0::/\n",
        **{"memory/box/memory.limit_in_bytes": str(2 * GIB), "memory/memory.limit_in_bytes": str((1 << 63) - 4096)},
    )
    assert host.total_bytes == 2 * GIB


def test_in_a_container_the_mount_is_the_own_cgroup(tmp_path):
    assert machine(tmp_path, cgroup="0::/not/mounted/here\n", **{"memory.max": str(GIB)}).total_bytes == GIB


def test_this_machine_has_memory():
    (cpu,) = inventory(DevicesSettings()).views(charged={}, now=0.0)
    assert cpu["total_bytes"] > 0 and cpu["used_bytes"] == 0


def test_host_memory_that_others_took_is_not_there_for_models(tmp_path):
    """MemTotal 16 GiB, 8 of them available."""
    host = machine(tmp_path, **{"memory.max": "max\n"})
    assert host.room(now=0.0).foreign_bytes == 8 * GIB
    host.measured(held_bytes=3 * GIB, overhead_bytes=0)
    assert host.room(now=1.0).foreign_bytes == 5 * GIB, "what models hold is no foreigner's"


def test_files_that_the_kernel_can_drop_take_nobody_s_room(tmp_path):
    host = machine(
        tmp_path,
        cgroup="0::/a\n",
        **{
            "a/memory.max": str(4 * GIB),
            "a/memory.current": str(3 * GIB),
            "a/memory.stat": f"anon {GIB}\ninactive_file {GIB}\nactive_file {GIB}\n",
        },
    )
    assert cgroup_memory(tmp_path) == [(4 * GIB, GIB)]
    assert host.room(now=0.0).foreign_bytes == GIB


def test_what_shared_processes_hold_beside_their_members_is_counted_within_a_budget_too(tmp_path):
    machine(tmp_path)
    host = Host(budget_bytes=2 * GIB, reserve_share=0.0, reserve_bytes=0, root=tmp_path)
    host.measured(held_bytes=GIB, overhead_bytes=GIB // 4)
    room = host.room(now=0.0)
    assert (room.total_bytes, room.foreign_bytes) == (2 * GIB, GIB // 4)


def test_bytes_that_don_t_come_back_are_planned_around_after_a_while():
    fake = devices(release_delay_ms=60_000)
    book(fake, "a", 5)
    fake.ended("a", now=0.0)
    early, late = (fake.rooms(charged={}, now=now)[1] for now in (1.0, 6.0))
    assert (early.lingering_bytes, early.foreign_bytes) == (5 * GIB, 0)
    assert (late.lingering_bytes, late.foreign_bytes) == (0, 5 * GIB)
    assert (fake.next_release(now=1.0), fake.next_release(now=6.0)) == (5.0, 60.0)
