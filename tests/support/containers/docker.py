"""Stands in for docker and podman: the same arguments, containers of util-linux.

A container is a process tree in its own user, pid and mount namespace, with a folder of its own
where its --workdir is (which has to exist on this machine); all else is the machine's. An image is
a folder below $STANDIN/images whose content the working directory begins with. It refuses what it
does not know, so that a misspelt option is found. Each command is written to $STANDIN/log.

It imports the standard library alone: its interpreter starts without site-packages.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(os.environ["STANDIN"])
BOXES = ROOT / "boxes"


def main() -> int:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("version")
    run = commands.add_parser("run")
    run.add_argument("--detach", action="store_true", required=True)
    for option in ("name", "label", "network", "security-opt", "cap-drop", "cpus", "pids-limit"):
        run.add_argument(f"--{option}", required=True)
    for option in ("memory", "memory-swap", "stop-signal", "workdir", "entrypoint"):
        run.add_argument(f"--{option}", required=True)
    run.add_argument("--cap-add", action="append")
    run.add_argument("image")
    run.add_argument("arguments", nargs=argparse.REMAINDER)
    inside = commands.add_parser("exec")
    inside.add_argument("--interactive", action="store_true", required=True)
    inside.add_argument("--workdir", required=True)
    inside.add_argument("name")
    inside.add_argument("arguments", nargs=argparse.REMAINDER)
    listing = commands.add_parser("ps")
    listing.add_argument("--all", action="store_true", required=True)
    listing.add_argument("--quiet", action="store_true", required=True)
    listing.add_argument("--filter", required=True)
    remove = commands.add_parser("rm")
    remove.add_argument("--force", action="store_true", required=True)
    remove.add_argument("names", nargs="+")
    inspect = commands.add_parser("inspect")
    inspect.add_argument("--type", choices=["container"], required=True)
    inspect.add_argument("--format", choices=["{{json .State}}"], required=True)
    inspect.add_argument("name")
    given = parser.parse_args()
    with (ROOT / "log").open("a", encoding="utf-8") as log:
        log.write(json.dumps(sys.argv[1:]) + "\n")
    return COMMANDS[given.command](given)


def version(given: argparse.Namespace) -> int:
    if (ROOT / "down").exists():
        return fail("Cannot connect to the Docker daemon. Is the docker daemon running?", 1)
    return 0


def run(given: argparse.Namespace) -> int:
    image = ROOT / "images" / given.image
    if not image.is_dir():
        return fail(f"Unable to find image '{given.image}' locally", 125)
    box = BOXES / given.name
    shutil.copytree(image, box / "files", symlinks=True)
    (box / "label").write_text(given.label, encoding="utf-8")
    mount = 'mount --bind "$0" "$1" && cd "$1" && shift && exec "$@"'
    process = subprocess.Popen(
        [
            *("unshare", "--user", "--map-root-user", "--pid", "--mount", "--mount-proc"),
            *("--fork", "--kill-child", "sh", "-c", mount, box / "files", given.workdir),
            *(given.entrypoint, *given.arguments),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    (box / "pid").write_text(str(process.pid), encoding="utf-8")
    while process.poll() is None and not main_process(process.pid):
        time.sleep(0.002)
    if process.poll() is not None:
        return fail("the container did not start", 125)
    print(given.name)
    return 0


def main_process(pid: int) -> int:
    """The first process in the container, once its folder is in place; 0 until then."""
    try:
        child = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
        if child and b"while ((" in Path(f"/proc/{child[0]}/cmdline").read_bytes()[:40]:
            return int(child[0])
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


def execute(given: argparse.Namespace) -> int:
    if (ROOT / "down").exists():
        return fail("Cannot connect to the Docker daemon. Is the docker daemon running?", 1)
    box = BOXES / given.name
    first = main_process(int((box / "pid").read_text(encoding="utf-8"))) if box.exists() else 0
    if not first:
        return fail(f"Error response from daemon: No such container: {given.name}", 1)
    enter = ("nsenter", "--user", "--preserve-credentials", "--pid", "--mount", f"--target={first}")
    code = subprocess.call([*enter, f"--wdns={given.workdir}", *given.arguments])
    return code if code >= 0 else 128 - code


def inspect(given: argparse.Namespace) -> int:
    box = BOXES / given.name
    if (ROOT / "down").exists() or not box.exists():
        return fail(f"Error: No such container: {given.name}", 1)
    runs = bool(main_process(int((box / "pid").read_text(encoding="utf-8"))))
    state = {"Status": "running" if runs else "exited", "Running": runs, "Paused": False}
    print(json.dumps({**state, "OOMKilled": False, "ExitCode": 0 if runs else 137}))
    return 0


def ps(given: argparse.Namespace) -> int:
    label = given.filter.removeprefix("label=")
    for box in BOXES.iterdir() if BOXES.exists() else ():
        if (box / "label").read_text(encoding="utf-8") == label:
            print(box.name)
    return 0


def rm(given: argparse.Namespace) -> int:
    for name in given.names:
        box = BOXES / name
        if box.exists():
            first = main_process(int((box / "pid").read_text(encoding="utf-8")))
            if first:
                os.kill(first, signal.SIGKILL)
            shutil.rmtree(box)
    return 0


def fail(why: str, code: int) -> int:
    print(why, file=sys.stderr)
    return code


COMMANDS = {"version": version, "run": run, "exec": execute, "inspect": inspect, "ps": ps, "rm": rm}

if __name__ == "__main__":
    sys.exit(main())
