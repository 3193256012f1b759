"""Agents in containers of podman: the kind `container`.

podman runs below the agent's keeper, which therefore is the parent of the container's own processes
too. Before it, a first program makes the container's network: a namespace with a loopback device
and one port on it, which leads to the ingress, as in a jail.

Invariants
- The container's network is that loopback device alone, its limits are the recipe's, and it sees
  its image and one folder of the host: the agent's.
- The key of the trajectory is in no command line.
- A container that a dead host left is removed at the start of the next one, and ends by itself
  `LATE_S` after its trajectory's time.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from agents.client import ClientSettings
from agents.environment import RESULT, TASK
from agents.errors import StartError
from agents.jail.forwarder import forwarded
from agents.jail.jail import PORT, JailStart
from agents.kinds.kept import Exited, KeptKind, address_of
from agents.kinds.kind import Site
from agents.work_folder import result_bytes
from toolwright.containers import NO_CONTAINER, ask, bounds, last_line, program_fault
from toolwright.recipe import Agent

INSIDE = "/toolwright"
"""The agent's folder, as its container sees it."""
LATE_S, FOREVER_S = 60.0, 1e9
NETWORK = "NETWORK"
"""Word of podman's command line that the first program replaces."""
_PODMANS = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LANG", "DBUS_SESSION_BUS_ADDRESS")
_PODMANS_OWN = ("CONTAINERS_", "XDG_", "STORAGE_")
"""Variables of the host that podman reads, and beginnings of others."""
_NAMESPACES = ("net", "pid", "mnt", "ipc", "uts")

FIRST = """
import ctypes, fcntl, json, os, signal, socket, struct, sys
NEWNET, SIOCSIFFLAGS, IFF_UP = 0x40000000, 0x8914, 1
libc = ctypes.CDLL(None, use_errno=True)
start = socket.socket(fileno=os.dup(0))
given = json.loads(start.recv(1 << 20))
outside = os.open("/proc/self/ns/net", os.O_RDONLY)
if libc.unshare(NEWNET):
    sys.exit("no network namespace: " + os.strerror(ctypes.get_errno()))
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
    fcntl.ioctl(link, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP))
listener = socket.create_server(("127.0.0.1", given["port"]), backlog=128)
inside = os.open("/proc/self/ns/net", os.O_RDONLY)
if libc.setns(outside, NEWNET):
    sys.exit("no way back: " + os.strerror(ctypes.get_errno()))
socket.send_fds(start, [b"listens"], [listener.fileno()])
listener.close()
nothing = os.open("/dev/null", os.O_RDONLY)
os.dup2(nothing, 0)
network = f"ns:/proc/{os.getpid()}/fd/{inside}"
words = [network if word == given["network"] else word for word in given["argv"]]
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # podman hands it to the agent
podman = os.fork()
if podman == 0:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.execvpe(words[0], words, given["environment"])
code = os.waitstatus_to_exitcode(os.waitpid(podman, 0)[1])
start.send(json.dumps(code if code >= 0 else 128 - code).encode())
"""


class ContainerKind(KeptKind):
    """`container`. The host is root."""

    def __init__(self, rules: Agent, site: Site, command: Sequence[str], seconds: float) -> None:
        """command: words of the agent; () = those of the image. seconds: of a trajectory."""
        super().__init__(rules, site)
        self._command = tuple(command)
        self._seconds = seconds
        self._address = address_of(site.ingress)
        self._owner = site.base.name
        self.words = f"in containers of {rules.image}"

    async def prepare(self) -> None:
        if os.geteuid():
            raise StartError(
                'kind = "container" needs a host that is root: another account cannot give a '
                "container its network"
            )
        if fault := await program_fault("podman"):
            raise StartError(fault)
        await self._sweep()
        image = self._rules.image
        if (await ask("podman", "image", "exists", image))[0]:
            code, said = await ask("podman", "pull", "--quiet", image, limit=None)
            if code:
                raise StartError(
                    f"podman has no image {image} and cannot fetch it ({last_line(said)}): load "
                    "it, or correct task.agent.image"
                )
        await self._try()

    async def close(self) -> None:
        await self._sweep()

    async def _try(self) -> None:
        """Makes a container up to the moment before its first program. Raises StartError if podman
        cannot, or if the container shares a namespace with the host."""
        name = f"{self._owner}-try"
        words = self._run_words(name, "none", None, {})
        try:
            for asked in (["create", *words], ["init", name]):
                code, said = await ask("podman", *asked)
                if code:
                    raise StartError(f"podman cannot run {self._rules.image}: {last_line(said)}")
            code, said = await ask("podman", "inspect", "--format", "{{.State.Pid}}", name)
            if code or not said.strip().isdigit():
                raise StartError(f"podman inspect {name}: {last_line(said)}")
            if shared := [one for one in _NAMESPACES if _shares(int(said), one)]:
                raise StartError(f"podman gives a container the host's {', '.join(shared)}")
        finally:
            await self._remove(name)

    async def _run(self, folder: Path, key: str) -> Exited:
        own = folder / "own"  # others have no way through the folder above it
        own.mkdir()
        own.chmod(0o777)
        (folder / TASK).rename(own / TASK).chmod(0o644)
        client = ClientSettings.of(f"http://127.0.0.1:{PORT}", key)
        paths = {"TOOLWRIGHT_TASK": TASK, "TOOLWRIGHT_RESULT": RESULT}
        variables = {
            **self._rules.environment,
            **client.variables(),
            **{variable: f"{INSIDE}/{name}" for variable, name in paths.items()},
        }
        name = f"{self._owner}-{folder.name}"
        words = ["podman", "run", "--rm", *self._run_words(name, NETWORK, own, variables)]
        podmans = {**variables, **_podmans(os.environ)}
        code: int | None = None
        try:
            async with AsyncExitStack() as stack:
                start = stack.enter_context(JailStart(words, own, podmans, network=NETWORK))
                agent = await stack.enter_async_context(
                    self._site.keepers.started(
                        (sys.executable, "-I", "-S", "-B", "-c", FIRST), "/", {}, start.stdin
                    )
                )
                if (listener := await start.listener()) is not None:
                    await stack.enter_async_context(forwarded(listener, *self._address))
                keepers = await agent.wait()
                code = start.exit_code()
        finally:
            if code in (None, NO_CONTAINER):  # else podman has removed it
                await self._remove(name)
        return Exited(
            code=keepers if code is None else code, output=agent.output, result=result_bytes(own)
        )

    def _run_words(
        self, name: str, network: str, own: Path | None, variables: Mapping[str, str]
    ) -> list[str]:
        """Words after `run` or `create`. A value is taken from podman's own environment, unless the
        variable is one of podman's."""
        rules = self._rules
        mount = f"type=bind,src={own},dst={INSIDE},relabel=private"
        podmans = _podmans(os.environ)
        given = [f"{one}={variables[one]}" if one in podmans else one for one in variables]
        return [
            *("--name", name, "--label", f"toolwright.agents={self._owner}"),
            *("--network", network, "--http-proxy=false", "--pull", "never"),
            *("--log-driver", "none", "--timeout", f"{min(self._seconds + LATE_S, FOREVER_S):.0f}"),
            *bounds(rules.memory_mib << 20, rules.processes),
            *(() if own is None else ("--mount", mount)),
            *(f"--env={one}" for one in given),
            rules.image,
            *self._command,
        ]

    async def _remove(self, name: str) -> None:
        removing = asyncio.create_task(
            ask("podman", "rm", "--force", "--time", "0", "--ignore", name)
        )
        await asyncio.shield(removing)

    async def _sweep(self) -> None:
        """Removes the containers of this host and of its earlier lives."""
        label = f"label=toolwright.agents={self._owner}"
        code, said = await ask("podman", "ps", "--all", "--quiet", "--filter", label)
        if code == 0 and said.split():
            await ask("podman", "rm", "--force", "--time", "0", "--ignore", *said.split())


def _podmans(host: Mapping[str, str]) -> dict[str, str]:
    """The host's variables that podman reads."""
    return {
        name: value
        for name, value in host.items()
        if name in _PODMANS or name.startswith(_PODMANS_OWN)
    }


def _shares(pid: int, namespace: str) -> bool:
    """Whether a process is in a namespace of this one, or is gone."""
    try:
        theirs = os.readlink(f"/proc/{pid}/ns/{namespace}")
    except OSError:
        return True
    return theirs == os.readlink(f"/proc/self/ns/{namespace}")
