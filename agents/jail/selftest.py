"""Tries, inside of a jail, what an agent must not do. A host with a weak jail does not start.

A sandbox may accept an option that the machine does not enforce: in a container, firejail may run
a program bare.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from agents.errors import StartError
from agents.jail.jail import PORT, PYTHON, Jail, JailStart
from agents.process.agent_process import AgentProcess

MOST_BAIT = 4
"""Files and folders that are tried of one folder."""
_PROBE = """
import json, os, socket, sys
bait = json.loads(sys.argv[1])
done = []
def attempt(what, action):
    try:
        action()
    except OSError:
        return
    done.append(what)
def connect(family, address):
    with socket.socket(family) as link:
        link.settimeout(2)
        link.connect(address)
attempt("reach a port of the machine", lambda: connect(socket.AF_INET, ("127.0.0.1", bait["tcp"])))
attempt("reach a socket of the machine", lambda: connect(socket.AF_UNIX, chr(0) + bait["name"]))
for kind, link in bait["namespaces"].items():
    if os.readlink("/proc/self/ns/" + kind) == link:
        done.append("be in the machine's namespace " + kind)
for path in bait["hidden"]:
    attempt("read " + path, lambda: os.close(os.open(path, os.O_RDONLY)))
if os.getuid() == 0:
    done.append("be root")
connect(socket.AF_INET, ("127.0.0.1", bait["port"]))
open("result.json", "w").close()
print(json.dumps(done))
"""


def unseen(folder: Path, shown: Sequence[str]) -> list[str]:
    """Files and folders of a folder that are neither in a shown folder nor on the way to one."""
    try:
        found = sorted(folder.iterdir())
    except OSError:
        return []
    return [
        str(path)
        for path in found
        if not any(path.is_relative_to(one) or Path(one).is_relative_to(path) for one in shown)
    ]


async def examine(jail: Jail, base: Path, run: Path, hidden: Sequence[Path] = ()) -> None:
    """Raises StartError with all that a jailed agent could do. base: folder of the agents. run: the
    run's folder, which a jail never shows. hidden: folders of which it sees no more than it has
    to."""
    if any(run.is_relative_to(folder) for folder in jail.folders):
        raise StartError(
            f"agents would see the run in {run}: shorten task.agent.folders, or move run.folder"
        )
    own = base / "probe"
    with ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        name = f"toolwright-agents-{secrets.token_hex(8)}"
        other = stack.enter_context(socket.socket(socket.AF_UNIX))
        other.bind("\0" + name)
        other.listen()
        bait = {
            "tcp": tcp.getsockname()[1],
            "name": name,
            "namespaces": {
                kind: os.readlink(f"/proc/self/ns/{kind}") for kind in ("pid", "net", "ipc")
            },
            "hidden": [
                path for one in (run, *hidden) for path in unseen(one, jail.folders)[:MOST_BAIT]
            ],
            "port": PORT,
        }
        own.mkdir(mode=0o700)
        words = [PYTHON, "-I", "-S", "-c", _PROBE, json.dumps(bait)]
        try:
            jail.give(own)
            start = stack.enter_context(JailStart(words, own, jail.environment()))
            agent = await AgentProcess.start(jail.words(own), "/", jail.environment(), start.stdin)
            listener = await start.listener()
            code = await agent.wait()
        except OSError as error:
            raise StartError(f"{jail.kind} cannot be started: {error}") from error
        agent.close()
        if listener is not None:
            listener.close()
    try:
        done = json.loads(agent.output.text())
    except ValueError as error:
        said = agent.output.text().strip()[-400:] or "without output"
        raise StartError(
            f"{jail.kind} cannot lock agents in here: its test ended with {code}: {said}"
        ) from error
    if done:
        raise StartError(
            f"{jail.kind} does not lock agents in here: one could {', '.join(done)}; try the other "
            "of firejail and bwrap, or shorten task.agent.folders"
        )
