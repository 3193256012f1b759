"""What a decoding process gives up before it sees its first file.

Decoders are C code that has been taken over by crafted files before. Whoever takes over this one
finds a process that can open no file and no socket, start no program, and hold no more memory than
its limit; what it can do is to answer wrongly.

The parts are those of the sandbox's sessions, without the jail around them: a jail runs the
system's Python, which lacks the service's Pillow and PyAV, and what runs here is no foreign
program. The kernel may lack Landlock, the machine a table of system calls; the limits hold in any
case, and the service's log tells which of the others do.
"""

from __future__ import annotations

import resource
import signal

from toolsvc.sandbox.jailed import bpf, kernel
from toolsvc.tools.image.wire import Greeting

_PR_SET_PDEATHSIG = 1
_OPEN_FILES = 16


def bound(memory_bytes: int) -> None:
    """Before anything is imported that could ask for more: address space, and no core files. And an
    end when the service ends, were it in the middle of a file."""
    kernel.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for which, value in ((resource.RLIMIT_AS, memory_bytes), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(which, (value, value))


def confine() -> Greeting:
    """For good: no path, no TCP, no socket, no capability, no new process. OSError where the kernel
    has it and does not give it."""
    kernel.no_new_privileges()
    abi = kernel.landlock_abi()
    if abi:
        kernel.landlock_restrict(abi, [])
    for which, value in ((resource.RLIMIT_NOFILE, _OPEN_FILES), (resource.RLIMIT_NPROC, 0)):
        resource.setrlimit(which, (value, value))
    kernel.drop_capabilities(in_own_namespace=False)
    known = kernel.MACHINE in bpf.NUMBERS
    if known:
        kernel.SeccompProgram(bpf.session_program(kernel.MACHINE)).install()
    return Greeting(landlock_abi=abi, seccomp=known)
