"""Real cards, as their driver would tell of them: against a stand-in for pynvml. On real hardware none of this was run."""

# Instants are plain numbers here.
# mypy: disable-error-code="arg-type"

import os
import subprocess
import sys

import pytest

from fornada.core.errors import BadRequest
from fornada.core.settings import CpuSettings, DevicesSettings, FakeDeviceSettings
from fornada.node.devices import inventory
from fornada.node.devices.cuda import RETURN_S, CudaDevice
from fornada.node.devices.nvml import find
from tests.unit.node.fake_nvml import FakeCard, FakeNvml

GIB = 1024**3
HERE = ("/proc/self",)


def found(*cards, **how):
    return find(load=lambda: FakeNvml(*cards, **how), present=HERE)


def device(card, *, reserve_share=0.0):
    (driver,) = found(card)
    return CudaDevice("cuda:0", driver, reserve_share=reserve_share, reserve_bytes=0)


def look(device, now=0.0):
    device.take(device.look(), now=now)
    return device.room(charged={}, now=now)


def test_without_a_card_nothing_is_imported():
    code = "import sys; from fornada.node.devices.nvml import find; assert find(present=()) == []; sys.exit('pynvml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_machine_without_library_or_driver_has_no_cards():
    def absent():
        raise ImportError("no module named pynvml")

    assert find(load=absent, present=HERE) == []
    assert found(library=False) == []
    assert found() == []


def test_a_card_that_is_lost_already_is_left_out_and_the_others_are_there():
    lost, well = FakeCard("GPU-1", total=GIB), FakeCard("GPU-2", total=GIB, name=b"Tesla T4")
    lost.lost = True
    (card,) = found(lost, well)
    assert (card.uuid, card.name) == ("GPU-2", "Tesla T4")


def test_real_cards_come_before_fake_ones():
    cards = found(FakeCard("GPU-1", total=80 * GIB), FakeCard("GPU-2", total=80 * GIB))
    devices = inventory(DevicesSettings(cpu=CpuSettings(budget="1GiB"), fake=[FakeDeviceSettings()]), cards=cards)
    assert [(view["id"], view["kind"]) for view in devices.views(charged={}, now=0.0)] == [
        ("cpu", "cpu"),
        ("cuda:0", "cuda"),
        ("cuda:1", "cuda"),
        ("cuda:2", "fake"),
    ]
    assert [devices.visible(id) for id in ("cpu", "cuda:0", "cuda:1", "cuda:2")] == ["", "GPU-1", "GPU-2", ""]
    assert devices.rooms(charged={}, now=0.0)[1].total_bytes == 80 * GIB - int(80 * GIB * 0.03)
    assert (devices.slack_bytes("cuda:0"), devices.slack_bytes("cuda:2")) == (64 * 1024**2, 0)


def test_what_an_instance_holds_is_told_from_what_others_hold():
    card = FakeCard("GPU-1", total=80 * GIB)
    cuda = device(card)
    card.used, card.processes = 30 * GIB, {os.getpid(): 10 * GIB, 999_999_999: 15 * GIB}
    cuda.started("a", os.getpid())
    assert look(cuda).foreign_bytes == 20 * GIB, "what the driver keeps for itself is somebody else's too"
    assert cuda.held("a") == 10 * GIB
    view = cuda.view(charged={}, now=0.0)
    assert (view["used_bytes"], view["foreign_bytes"], view["name"]) == (30 * GIB, 20 * GIB, "NVIDIA H200")


def test_the_children_of_an_instance_count_as_it():
    card = FakeCard("GPU-1", total=80 * GIB)
    cuda = device(card)
    child = subprocess.Popen(["sleep", "60"])
    try:
        card.used, card.processes, card.mps = 5 * GIB, {child.pid: 2 * GIB}, {os.getpid(): 3 * GIB}
        cuda.started("a", os.getpid())
        look(cuda)
        assert cuda.held("a") == 5 * GIB
    finally:
        child.kill()
        child.wait()


def test_bytes_of_a_process_that_is_gone_count_until_the_card_s_own_counter_goes_down():
    card = FakeCard("GPU-1", total=80 * GIB)
    cuda = device(card)
    card.used, card.processes = 12 * GIB, {os.getpid(): 10 * GIB}
    cuda.started("a", os.getpid())
    look(cuda)
    card.processes = {}
    cuda.ended("a", now=0.0)
    assert (look(cuda, 0.1).lingering_bytes, cuda.next_release(now=0.1)) == (10 * GIB, pytest.approx(0.15))
    card.used = 6 * GIB
    assert look(cuda, 0.2).lingering_bytes == 4 * GIB
    card.used = 2 * GIB
    room = look(cuda, 0.3)
    assert (room.lingering_bytes, room.foreign_bytes, cuda.next_release(now=0.3)) == (0, 2 * GIB, float("inf"))


def test_bytes_that_never_come_back_are_somebody_else_s_after_a_while_and_nobody_waits_for_them():
    card = FakeCard("GPU-1", total=80 * GIB)
    cuda = device(card)
    card.used, card.processes = 10 * GIB, {os.getpid(): 10 * GIB}
    cuda.started("a", os.getpid())
    look(cuda)
    cuda.ended("a", now=0.0)
    room = look(cuda, RETURN_S + 0.1)
    assert (room.lingering_bytes, room.foreign_bytes, cuda.next_release(now=9.0)) == (0, 10 * GIB, float("inf"))


@pytest.mark.parametrize("silence", ["no permission", "no amount", "other pids"])
def test_where_the_driver_doesn_t_say_who_holds_what_charges_are_believed(silence):
    card = FakeCard("GPU-1", total=80 * GIB)
    cuda = device(card)
    cuda.started("a", os.getpid())
    card.used, card.processes = 25 * GIB, {os.getpid(): None} if silence == "no amount" else {999_999_999: 25 * GIB}
    card.tells_processes = silence != "no permission"
    cuda.take(cuda.look(), now=0.0)
    assert cuda.held("a") == 0
    assert cuda.room(charged={"a": 20 * GIB}, now=0.0).foreign_bytes == 5 * GIB
    assert cuda.room(charged={"a": 40 * GIB}, now=0.0).foreign_bytes == 0


def test_a_card_s_own_fault_fences_it_and_a_program_s_doesn_t():
    card = FakeCard("GPU-1", total=80 * GIB)
    cuda = device(card)
    card.xids.extend([31, 13])
    assert not look(cuda).fenced
    assert (cuda.faults(), cuda.fence) == ([31, 13], "")
    card.xids.append(48)
    look(cuda)
    assert (cuda.faults(), cuda.fence) == ([48], "XID 48: a double bit error of its memory")
    assert cuda.faults() == [], "told once"
    assert look(cuda).fenced
    cuda.patch({"unfence": True}, now=0.0)
    assert not look(cuda).fenced


@pytest.mark.parametrize("change", [{"foreign": 1}, {"unfence": 1}, {"unfence": False}, {"xid": 79}])
def test_a_real_card_takes_nothing_but_the_lift_of_its_fence(change):
    with pytest.raises(BadRequest, match="real card"):
        device(FakeCard("GPU-1", total=GIB)).patch(change, now=0.0)


def test_a_card_that_is_lost_is_fenced_in_the_driver_s_words_and_again_after_an_unfence_that_came_too_early():
    card = FakeCard("GPU-1", total=80 * GIB)
    cuda = device(card)
    card.lost = True
    assert look(cuda).fenced
    assert cuda.view(charged={}, now=0.0)["fence"] == "GPU is lost"
    cuda.patch({"unfence": True}, now=0.0)
    assert look(cuda).fenced
    card.lost = False
    cuda.patch({"unfence": True}, now=0.0)
    assert not look(cuda).fenced


def test_what_a_driver_doesn_t_support_is_left_out():
    card = FakeCard("GPU-1", total=80 * GIB)
    card.tells_events = False
    nvml = FakeNvml(card)
    (driver,) = find(load=lambda: nvml, present=HERE)
    assert nvml.sets_left == 0
    assert driver.read() == (80 * GIB, 0, {}, (), None, "")
    card.energy_mj = 12_500
    assert driver.read().energy_j == 12.5


def test_each_part_of_a_card_that_is_split_is_a_device_of_its_own():
    parts = (FakeCard("MIG-1", total=10 * GIB), None, FakeCard("MIG-2", total=20 * GIB))
    whole = FakeCard("GPU-1", total=80 * GIB, parts=parts)
    one, two = found(whole)
    assert [(part.uuid, part.read().total_bytes) for part in (one, two)] == [("MIG-1", 10 * GIB), ("MIG-2", 20 * GIB)]
    assert one.name == "NVIDIA H200"
