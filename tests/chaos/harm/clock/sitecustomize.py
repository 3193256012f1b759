"""Python runs this at its start where the folder is on PYTHONPATH: the process's wall clock can be
shifted from outside while it runs.

`CHAOS_CLOCK` names a file of one double, the shift in seconds. `time.time` and `time.time_ns` are
shifted; monotonic clocks are not, nor are clocks that C code reads.
"""

import mmap
import os
import struct
import time

_FILE = os.environ.get("CHAOS_CLOCK")

if _FILE:
    with open(_FILE, "rb") as file:
        _shift = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
    _time, _time_ns = time.time, time.time_ns

    def _seconds() -> float:
        return float(struct.unpack("<d", _shift[:8])[0])

    time.time = lambda: _time() + _seconds()
    time.time_ns = lambda: _time_ns() + int(_seconds() * 1e9)
