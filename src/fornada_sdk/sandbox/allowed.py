"""The system calls that a model may make: what numpy, the runtimes of models, Python's own modules and CUDA need, by purpose.

Everything else is refused. What has to do with the whole machine, with other processes' memory or with making namespaces and mounts
isn't here: mount and its family, unshare, setns, ptrace, process_vm_*, pidfd_getfd, bpf, perf_event_open, io_uring_*, userfaultfd,
keyctl, modules, clocks, swap, quotas, open_by_handle_at. Some of these calls are allowed with certain arguments only: seccomp.py.
"""

from __future__ import annotations

FILES = """
access chdir chmod chown close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2 fadvise64 fallocate fchdir fchmod
fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr file_getattr file_setattr flistxattr flock fremovexattr fsetxattr fstat
fstatfs fsync ftruncate futimesat getcwd getdents getdents64 getxattr getxattrat inotify_add_watch inotify_init inotify_init1
inotify_rm_watch ioctl lchown lgetxattr link linkat listxattr listxattrat llistxattr lremovexattr lseek lsetxattr lstat mkdir mkdirat
mknod mknodat newfstatat open openat openat2 pread64 preadv preadv2 pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv
removexattr removexattrat rename renameat renameat2 rmdir sendfile setxattr setxattrat splice stat statfs statx symlink symlinkat sync
sync_file_range syncfs tee truncate umask unlink unlinkat utime utimensat utimes vmsplice write writev
"""
WAITING = """
epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2 io_cancel
io_destroy io_getevents io_pgetevents io_setup io_submit pause pipe pipe2 poll ppoll pselect6 select signalfd signalfd4
"""
SOCKETS = """
accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg recvmsg sendmmsg sendmsg sendto setsockopt
shutdown socket socketpair
"""
MEMORY = """
brk cachestat get_mempolicy madvise map_shadow_stack mbind membarrier memfd_create mincore mlock mlock2 mlockall mmap mprotect mremap
mseal msync munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect remap_file_pages set_mempolicy set_mempolicy_home_node
"""
PROCESSES = """
arch_prctl capget capset clone execve execveat exit exit_group fork getcpu getegid geteuid getgid getgroups getpgid getpgrp getpid
getppid getpriority getresgid getresuid getrlimit getrusage getsid gettid getuid ioprio_get ioprio_set kill personality pidfd_open
pidfd_send_signal prctl prlimit64 rseq rseq_slice_yield set_tid_address setfsgid setfsuid setgid setgroups setpgid setpriority setregid
setresgid setresuid setreuid setrlimit setsid setuid sysinfo tgkill times tkill uname vfork wait4 waitid
"""
THREADS = """
futex futex_requeue futex_wait futex_waitv futex_wake get_robust_list get_thread_area sched_get_priority_max sched_get_priority_min
sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam
sched_setscheduler sched_yield set_robust_list
"""
SIGNALS = """
alarm restart_syscall rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
rt_tgsigqueueinfo sigaltstack
"""
TIME = """
clock_getres clock_gettime clock_nanosleep getitimer gettimeofday nanosleep setitimer time timer_create timer_delete timer_getoverrun
timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime getrandom
"""
SHARED_OBJECTS = """
mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd semctl semget semop semtimedop shmat
shmctl shmdt shmget
"""
"""System V and POSIX objects: of the own ipc namespace where there is one, everybody's where there is none."""

CHANGING_ATTRIBUTES = frozenset(
    [
        *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "fchownat", "lchown", "file_setattr"),
        *("utime", "utimes", "utimensat", "futimesat", "setxattr", "lsetxattr", "fsetxattr", "setxattrat"),
        *("removexattr", "lremovexattr", "fremovexattr", "removexattrat"),
    ]
)
EVERYWHERE = frozenset(f"{FILES} {WAITING} {SOCKETS} {MEMORY} {PROCESSES} {THREADS} {SIGNALS} {TIME}".split())
IN_AN_IPC_NAMESPACE = frozenset(SHARED_OBJECTS.split())
