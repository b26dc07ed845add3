"""The filter's program, run by an interpreter of the kernel's instructions: every call, both processors, every variant."""

import ctypes
import errno
import itertools
import stat

import pytest

from fornada_sdk.sandbox import allowed, bpf, seccomp, syscalls
from fornada_sdk.sandbox.architecture import AARCH64, ALL, X86_64, Architecture
from fornada_sdk.sandbox.bpf import Branch, Compare, Load, Return
from fornada_sdk.sandbox.seccomp import Uid, Variant
from tests.security.sandbox import bpf_machine

ALLOWED = "allowed"
KILLED = "killed"
PID = 4711

BOTH = pytest.mark.parametrize("architecture", ALL, ids=lambda architecture: architecture.name)
VARIANTS = pytest.mark.parametrize("variant", Variant, ids=lambda variant: variant.value)
FREE = tuple(variant for variant in Variant if variant not in (Variant.STRICT, Variant.SCOPED))
BUILDING = {"mount", "unshare", "setns", "umount2", "pivot_root", "move_mount", "sethostname", "seccomp"}
BUILDING |= {"landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"}
BOUND = (Variant.STRICT, Variant.SCOPED)


def verdict(
    variant: Variant, architecture: Architecture, number: int, *arguments: int, audit: int | None = None, uid: Uid = Uid.OWN
) -> str:
    program = seccomp.program(variant, architecture=architecture, pid=PID, uid=uid)
    got = bpf_machine.run(program, bpf_machine.call(number, architecture.audit if audit is None else audit, *arguments))
    if got == 0x7FFF0000:
        return ALLOWED
    if got == 0x80000000:
        return KILLED
    assert got & 0xFFFF0000 == 0x00050000
    return errno.errorcode[got & 0xFFFF]


def by_name(variant: Variant, name: str, *arguments: int, architecture: Architecture = X86_64) -> str:
    return verdict(variant, architecture, architecture.numbers[name], *arguments)


@BOTH
@VARIANTS
def test_only_the_listed_calls_are_allowed(variant: Variant, architecture: Architecture):
    names = {number: name for name, number in architecture.numbers.items()}
    listed = allowed.EVERYWHERE | (allowed.IN_AN_IPC_NAMESPACE if variant in FREE else frozenset())
    if variant is Variant.ZYGOTE:
        listed |= BUILDING
    if variant in (Variant.WATCHED, Variant.WATCHED_NETWORK):
        listed -= {"shmget"}
    for number in range(max(names) + 1):
        name = names.get(number, "")
        got = verdict(variant, architecture, number, 1, 1, 1, 1)
        if name == "clone3":
            assert got == "ENOSYS"
        elif name not in listed:
            assert got == "EPERM", (number, name)
        elif name not in DECIDED_BY_ARGUMENTS | BUILDING:
            assert got == ALLOWED, (number, name)


DECIDED_BY_ARGUMENTS = {name for name, what in seccomp.verdicts(Variant.STRICT, pid=PID, uid=Uid.OWN).items() if what != seccomp.ALLOW}


@BOTH
@VARIANTS
def test_calls_of_a_newer_kernel_are_unknown_and_those_of_another_table_end_the_process(variant: Variant, architecture: Architecture):
    newest = max(architecture.numbers.values())
    for number in (newest + 1, newest + 100, 0x3FFFFFFF):
        assert verdict(variant, architecture, number) == "ENOSYS"
    for number in (0x40000000, 0x40000000 | 59, 0xFFFFFFFF):
        assert verdict(variant, architecture, number) == KILLED
    for audit in {0x40000003, 0x40000028, X86_64.audit, AARCH64.audit, 0} - {architecture.audit}:
        assert verdict(variant, architecture, architecture.numbers["read"], audit=audit) == KILLED


REFUSED = """
mount umount2 pivot_root chroot fsopen fsconfig fsmount fspick move_mount open_tree mount_setattr open_tree_attr statmount
listmount unshare setns ptrace process_vm_readv process_vm_writev process_madvise process_mrelease pidfd_getfd kcmp bpf
perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register keyctl add_key request_key open_by_handle_at
name_to_handle_at kexec_load kexec_file_load init_module finit_module delete_module swapon swapoff reboot acct quotactl
quotactl_fd settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname syslog fanotify_init fanotify_mark
lookup_dcookie nfsservctl vhangup migrate_pages move_pages memfd_secret seccomp landlock_create_ruleset lsm_list_modules
"""


@BOTH
@VARIANTS
def test_what_has_to_do_with_the_machine_or_with_others_is_refused(variant: Variant, architecture: Architecture):
    needed = BUILDING if variant is Variant.ZYGOTE else set()
    for name in REFUSED.split():
        if name in architecture.numbers and name not in needed:
            assert verdict(variant, architecture, architecture.numbers[name], 0, 0, 0, 0) == "EPERM", name
    if architecture is X86_64:
        for name in ("iopl", "ioperm", "modify_ldt", "uselib", "create_module", "_sysctl"):
            assert by_name(variant, name) == "EPERM"


@BOTH
@VARIANTS
def test_a_clone_makes_processes_and_threads_but_no_namespace(variant: Variant, architecture: Architecture):
    number = architecture.numbers["clone"]
    for flags in (17, 0x3D0F00, 0x4111, 0x01200011):  # fork, pthread_create, vfork, fork of glibc
        assert verdict(variant, architecture, number, flags) == ALLOWED
    for flag in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert verdict(variant, architecture, number, flag | 17) == "EPERM"
        assert verdict(variant, architecture, number, (1 << 40) | flag | 17) == "EPERM", "the kernel cuts the upper half off"


@BOTH
@VARIANTS
def test_some_arguments_are_refused_everywhere(variant: Variant, architecture: Architecture):
    def of(name: str, *arguments: int) -> str:
        return verdict(variant, architecture, architecture.numbers[name], *arguments)

    for request in (0x5412, 0x541C, 0x5423):
        assert of("ioctl", 0, request) == "EPERM"
        assert of("ioctl", 0, request | 1 << 32) == "EPERM", "the kernel cuts the upper half off"
    assert of("ioctl", 0, 0x5401) == ALLOWED
    assert [of("personality", value) for value in (0, 0xFFFFFFFF, 2**64 - 1, 8, 0x0040000)] == [ALLOWED, ALLOWED, ALLOWED, "EPERM", "EPERM"]
    assert [of("prctl", option) for option in (15, 38, 22, 35)] == [ALLOWED, ALLOWED, "EPERM", "EPERM"]
    for kind, answer in ((stat.S_IFCHR, "EPERM"), (stat.S_IFBLK, "EPERM"), (stat.S_IFIFO, ALLOWED), (0, ALLOWED), (stat.S_IFREG, ALLOWED)):
        assert of("mknodat", 0, 0, kind | 0o777) == answer
        if architecture is X86_64:
            assert of("mknod", 0, kind | 0o777) == answer
    assert of("socketpair", 1, 5) == ALLOWED
    assert of("socketpair", 2, 1) == "EAFNOSUPPORT"


UNIX, INET, INET6, NETLINK, PACKET, VSOCK, ALG = 1, 2, 10, 16, 17, 40, 38
STREAM, DATAGRAM, RAW, SEQPACKET = 1, 2, 3, 5
FLAGS = 0o2004000


@BOTH
def test_which_sockets_there_are(architecture: Architecture):
    def of(variant: Variant, *arguments: int) -> str:
        return verdict(variant, architecture, architecture.numbers["socket"], *arguments)

    client = (Variant.NETWORK, Variant.HOST)
    for family in (UNIX, INET, INET6, NETLINK, PACKET, VSOCK, ALG, 0, 255):
        for variant in BOUND:
            assert of(variant, family, STREAM) == "EAFNOSUPPORT"
        assert of(Variant.USUAL, family, STREAM) == (ALLOWED if family == UNIX else "EAFNOSUPPORT")
        assert of(Variant.NETWORK, family, STREAM) == (ALLOWED if family in (UNIX, INET, INET6) else "EAFNOSUPPORT")
        assert of(Variant.HOST, family, STREAM) == (ALLOWED if family in (UNIX, INET, INET6, NETLINK) else "EAFNOSUPPORT")
    for variant in client:
        for kind in (STREAM, DATAGRAM, SEQPACKET):
            assert of(variant, UNIX, kind | FLAGS) == ALLOWED
        for family in (INET, INET6):
            assert of(variant, family, STREAM | FLAGS, 6) == ALLOWED
            for kind in (RAW, SEQPACKET, 4, 6, 10):
                assert of(variant, family, kind | FLAGS) == "EPERM"
            for protocol in (132, 262, 255, 1):  # SCTP, MPTCP
                assert of(variant, family, STREAM, protocol) == "EPROTONOSUPPORT"
    for family in (INET, INET6):
        assert [of(variant, family, DATAGRAM | FLAGS, 17) for variant in client] == ["EPERM", ALLOWED]
        assert of(Variant.HOST, family, DATAGRAM, 1) == "EPROTONOSUPPORT", "no ping"
    assert of(Variant.HOST, NETLINK, RAW, 9) == "EPROTONOSUPPORT", "the routing table alone"


@BOTH
def test_a_zygotes_filter_allows_what_its_childrens_do(architecture: Architecture):
    """A child's filter comes on top of it, and the stricter of the two counts."""
    values = (0, 1, 2, 3, 6, 10, 15, 17, 22, 0x5412, 0x541C, 0o010000, 0o020000, 0x10000011, PID)
    for name, number in architecture.numbers.items():
        several = values if name in DECIDED_BY_ARGUMENTS else (0,)
        for given in itertools.product(several, several, (0, 6, 132) if name == "socket" else (0,)):
            if ALLOWED in (verdict(variant, architecture, number, *given) for variant in (Variant.USUAL, Variant.NETWORK)):
                assert verdict(Variant.ZYGOTE, architecture, number, *given) == ALLOWED, (name, given)

    def of(name: str, *arguments: int) -> str:
        return verdict(Variant.ZYGOTE, architecture, architecture.numbers[name], *arguments)

    assert all(of(name, 1, 1) == ALLOWED for name in BUILDING - {"mount"})
    assert of("seccomp", 1, 8) == of("seccomp", 1, 0) == "EPERM", "a filter with a listener would answer the calls of others"
    # What is mounted read-only stays so, although nothing locks it in a zygote.
    assert of("mount", 0, 0, 0, 6) == of("mount", 0, 0, 0, syscalls.MS_MADE_READ_ONLY) == ALLOWED
    for flags in (0x20, 0x1020, 0x1026, 0x21, syscalls.MS_MADE_READ_ONLY | 8):
        assert of("mount", 0, 0, 0, flags) == "EPERM"
    assert of("mount_setattr") == of("open_tree") == of("fsopen") == "EPERM"


@BOTH
def test_without_namespaces_nothing_reaches_a_process_of_the_same_uid(architecture: Architecture):
    def of(variant: Variant, name: str, *arguments: int) -> str:
        return verdict(variant, architecture, architecture.numbers[name], *arguments)

    for name in ("prlimit64", "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler"):
        for variant in BOUND:
            assert [of(variant, name, pid) for pid in (0, PID, 1)] == [ALLOWED, "EPERM", "EPERM"]
        assert of(Variant.USUAL, name, PID) == ALLOWED
    for variant in BOUND:
        assert [of(variant, "setpriority", *given) for given in ((0, 0), (0, 1), (1, 0), (2, 0))] == [ALLOWED, "EPERM", "EPERM", "EPERM"]
        assert [of(variant, "ioprio_set", *given) for given in ((1, 0), (1, 1), (2, 0), (3, 0))] == [ALLOWED, "EPERM", "EPERM", "EPERM"]
        for name in ("shmget", "shmat", "msgget", "semget", "mq_open", "mq_unlink"):
            assert of(variant, name) == "EPERM"


@BOTH
def test_strict_signals_itself_alone(architecture: Architecture):
    def of(variant: Variant, name: str, *arguments: int) -> str:
        return verdict(variant, architecture, architecture.numbers[name], *arguments)

    everybody = 2**64 - 1
    for name in ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"):
        assert [of(Variant.STRICT, name, pid) for pid in (PID, 0, 1, everybody)] == [ALLOWED, "EPERM", "EPERM", "EPERM"]
    for name in ("tkill", "pidfd_send_signal"):
        assert of(Variant.STRICT, name, PID) == "EPERM"
    # A file's owner is sent signals by the kernel.
    assert [of(Variant.STRICT, "fcntl", 3, command) for command in (1, 3, 8, 10, 15)] == [ALLOWED, ALLOWED, "EPERM", "EPERM", "EPERM"]
    for variant in Variant:
        assert [of(variant, "fcntl", 3, command) for command in (1024, 1025, 1026, 1033)] == ["EPERM", ALLOWED, "EPERM", ALLOWED], variant
    assert [of(Variant.STRICT, "ioctl", 3, request) for request in (0x8901, 0x8902, 0x5412, 0x541B)] == ["EPERM", "EPERM", "EPERM", ALLOWED]
    for variant in (Variant.SCOPED, *FREE):
        assert of(variant, "kill", 1) == ALLOWED


@BOTH
def test_without_namespaces_what_landlock_leaves_open_is_refused(architecture: Architecture):
    def of(variant: Variant, name: str, *arguments: int, uid: Uid = Uid.OWN) -> str:
        return verdict(variant, architecture, architecture.numbers[name], *arguments, uid=uid)

    for name in allowed.CHANGING_ATTRIBUTES & architecture.numbers.keys():
        for variant in BOUND:
            assert [of(variant, name, uid=uid) for uid in (Uid.OWN, Uid.SHARED)] == [ALLOWED, "EPERM"]
        assert of(Variant.USUAL, name, uid=Uid.SHARED) == ALLOWED
    for variant in BOUND:
        assert of(variant, "inotify_add_watch") == "EPERM"
    read, write, both, cut = 0, 1, 2, 0o1000
    answers = {read: ALLOWED, write | cut: ALLOWED, both | cut: ALLOWED, read | cut: "EPERM", read | cut | 0o2000000: "EPERM"}
    for flags, answer in answers.items():
        assert of(Variant.STRICT, "openat", 0, 0, flags) == answer
        assert of(Variant.SCOPED, "openat", 0, 0, flags) == ALLOWED, "there Landlock sees to it"
        if "open" in architecture.numbers:
            assert of(Variant.STRICT, "open", 0, flags) == answer
    assert [of(variant, "truncate") for variant in BOUND] == ["EPERM", ALLOWED]
    assert [of(variant, "openat2") for variant in BOUND] == ["ENOSYS", ALLOWED]


def test_every_allowed_name_exists_on_one_of_the_processors():
    known = X86_64.numbers.keys() | AARCH64.numbers.keys()
    assert known >= allowed.EVERYWHERE | allowed.IN_AN_IPC_NAMESPACE
    for variant in Variant:
        assert known >= seccomp.verdicts(variant, pid=PID, uid=Uid.SHARED).keys()


@BOTH
def test_the_numbers_are_those_of_libseccomp(architecture: Architecture):
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        pytest.skip("libseccomp.so.2 is missing")
    library.seccomp_syscall_resolve_name_arch.argtypes = [ctypes.c_uint32, ctypes.c_char_p]
    compared = 0
    for name in X86_64.numbers.keys() | AARCH64.numbers.keys():
        theirs = library.seccomp_syscall_resolve_name_arch(architecture.audit, name.encode())
        if theirs == -1:
            continue  # newer than the library
        if theirs < 0:
            assert name not in architecture.numbers, f"{name} isn't a call of {architecture.name}"
        else:
            assert architecture.numbers[name] == theirs, name
            compared += 1
    assert compared > 250


@VARIANTS
def test_a_program_is_small(variant: Variant):
    for architecture in ALL:
        assert len(seccomp.program(variant, architecture=architecture, pid=PID)) // 8 < 400


def test_a_jump_may_be_longer_than_a_condition_reaches():
    ranges = [(number, Return(number * 7)) for number in range(1000)]
    program = bpf.packed(bpf.instructions(Load(0, bpf.search(ranges))))
    for number in range(1000):
        assert bpf_machine.run(program, bpf_machine.call(number, 0)) == number * 7
    assert any(instruction.code == bpf.JUMP for instruction in bpf.instructions(Load(0, bpf.search(ranges))))


def test_a_program_that_the_kernel_wouldnt_take_is_refused():
    tree: bpf.Decision = Return(0)
    for number in range(600):
        tree = Branch(Compare.EQUAL, number, Return(number), tree)
    assert bpf.instructions(tree)
    with pytest.raises(ValueError, match="4096"):
        bpf.instructions(bpf.search([(number, Return(number)) for number in range(3000)]))
