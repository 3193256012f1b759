"""The jailed sources as one message, and the few lines that unpack it inside the jail.

The bundle travels through the control socket (in a memfd, beside the settings), so nothing of
this package has to be readable in the jail.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib import resources
from typing import Any

# Each imports only those before it; the driver stands where it finds all that it may import.
_BEFORE_THE_DRIVER = (
    *("wire", "walls.syscalls", "walls.bpf", "walls.kernel", "walls.confine"),
    *("watching.measure", "walls.homes", "watching.share", "preload"),
)
_AFTER_THE_DRIVER = ("watching.watch", "forker", "zygote")
_PARTS_OF_A_DRIVER = {
    "shell": ("channel", "texts", "files", "terminal", "bash"),
    "database": ("channel", "table", "json_rows"),
}

BOOTSTRAP = """
import json, os, socket, sys, types
start = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=os.dup(0))
nothing = os.open('/dev/null', os.O_RDONLY)
os.dup2(nothing, 0)
os.close(nothing)
_, (control, bundle), _, _ = socket.recv_fds(start, 64, 2)
start.close()
os.dup2(control, 3, inheritable=False)
os.close(control)
control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=3)
with open(bundle, 'rb') as file:
    message = json.loads(file.read())
def package(name):
    if name not in sys.modules:
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = []
    return sys.modules[name]
for name, source in message['sources']:
    folder, _, leaf = ('jailed.' + name).rpartition('.')
    module = types.ModuleType('jailed.' + name)
    module.__package__ = folder
    sys.modules['jailed.' + name] = module
    setattr(package(folder), leaf, module)
    exec(compile(source, '<jailed/' + name.replace('.', '/') + '.py>', 'exec'), module.__dict__)
package('jailed').zygote.main(control, message['settings'])
"""


def bundle(settings: Mapping[str, Any]) -> bytes:
    """Sources in import order and the zygote's settings; of the drivers only the one it needs."""
    folder = resources.files("toolsvc.sandbox") / "jailed"
    driver = settings["driver"]
    drivers = [f"drivers.{name}" for name in (*_PARTS_OF_A_DRIVER.get(driver, ()), driver)]
    order = (*_BEFORE_THE_DRIVER, *drivers, *_AFTER_THE_DRIVER)
    sources = [
        (name, (folder / f"{name.replace('.', '/')}.py").read_text("utf-8")) for name in order
    ]
    return json.dumps({"sources": sources, "settings": settings}).encode()


def bundle_file(settings: Mapping[str, Any]) -> int:
    """An in-memory file that holds the bundle, at its start. The caller closes it."""
    descriptor = os.memfd_create("jailed", os.MFD_CLOEXEC)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(bundle(settings))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def probe_source() -> str:
    """The self-test that runs as foreign code in a session."""
    folder = resources.files("toolsvc.sandbox") / "jailed"
    return (folder / "probe.py").read_text("utf-8")
