"""Numbers of the system calls that filters look at, for the machines that there are filters for.

A call that is in no table is one that sessions may make, unless it is newer than all of them.
"""

from __future__ import annotations

X86_64 = "x86_64"
AARCH64 = "aarch64"


def numbers(table: str) -> dict[str, dict[str, int]]:
    """The numbers by machine and name. `table`: items of a name and its numbers on x86-64 and
    aarch64, with commas between; `-` stands for a call that the machine does not have."""
    found: dict[str, dict[str, int]] = {X86_64: {}, AARCH64: {}}
    for item in table.replace("\n", ",").strip(",").split(","):
        name, *of_machines = item.split()
        for machine, number in zip((X86_64, AARCH64), of_machines):  # noqa: B905 - Python 3.9
            if number != "-":
                found[machine][name] = int(number)
    return found


NUMBERS = numbers("""
_sysctl 156 -, accept 43 202, accept4 288 242, acct 163 89, add_key 248 217
adjtimex 159 171, bind 49 200, bpf 321 280, chroot 161 51, clock_adjtime 305 266
clock_settime 227 112, clone 56 220, clone3 435 435, connect 42 203, delete_module 176 106
fadvise64 221 223, fanotify_init 300 262, fanotify_mark 301 263, fcntl 72 25
fdatasync 75 83, finit_module 313 273, fsconfig 431 431, fsetxattr 190 7, fsmount 432 432
fsopen 430 430, fspick 433 433, fsync 74 82, getsockopt 55 209, init_module 175 105
inotify_add_watch 254 27, inotify_init 253 -, inotify_init1 294 26, io_setup 206 0
io_submit 209 2, io_uring_enter 426 426, io_uring_register 427 427, io_uring_setup 425 425
ioperm 173 -, iopl 172 -, kcmp 312 272, kexec_file_load 320 294, kexec_load 246 104
keyctl 250 219, landlock_add_rule 445 445, landlock_create_ruleset 444 444
landlock_restrict_self 446 446, listen 50 201, listmount 458 458, lookup_dcookie 212 18
lsetxattr 189 6, madvise 28 233, mbind 237 235, memfd_create 319 279, memfd_secret 447 447
migrate_pages 256 238, modify_ldt 154 -, mount 165 40, mount_setattr 442 442
move_mount 429 429, move_pages 279 239, mq_open 240 180, msgget 68 186
name_to_handle_at 303 264, open_by_handle_at 304 265, open_tree 428 428
perf_event_open 298 241, pidfd_getfd 438 438, pivot_root 155 41, prctl 157 167
process_madvise 440 440, process_vm_readv 310 270, process_vm_writev 311 271, ptrace 101 117
quotactl 179 60, quotactl_fd 443 443, reboot 169 142, request_key 249 218, semget 64 190
set_mempolicy 238 237, set_mempolicy_home_node 450 450, setdomainname 171 162
sethostname 170 161, setns 308 268, setsid 112 157, setsockopt 54 208, settimeofday 164 170
setxattr 188 5, setxattrat 463 463, shmat 30 196, shmget 29 194, socket 41 198
socketpair 53 199, statmount 457 457, swapoff 168 225, swapon 167 224, sync 162 81
sync_file_range 277 84, syncfs 306 267, syslog 103 116, umount2 166 39, unshare 272 97
uselib 134 -, userfaultfd 323 282, vhangup 153 58, vmsplice 278 75
""")

NEWER = 467
"""The first number beyond the table: later calls were not examined."""
