#!/usr/bin/env python3
"""Starts the real SGLang server on this machine's CPU: `serve.py MODEL PORT [SGLANG FLAG ...]`.

The launcher prepares one process and becomes it (exec), so the pid that a caller holds is the
server's own. The server says "serving MODEL at URL" on standard output once it answers
(shims/announced_server.py).

Invariants:
- The server leads a process group of its own. Its scheduler and detokenizer are in that group, so
  `kill -KILL -- -PID` ends all of it, in any state.
- The server never outlives the process that started it: the kernel kills it when that process (to
  be exact, the thread of it that started the server) ends, and the server's children with it
  (shims/die_with_server.py). With `--stay` it outlives its starter.
- It listens on loopback only, reads models from local disk only, and computes on one thread, or on
  as many as TOOLWRIGHT_SAMPLER_THREADS says.

Later flags win, so a caller can change any of FLAGS.
"""

import ctypes
import errno
import os
import signal
import socket
import sys
from pathlib import Path
from typing import NoReturn

import where

SHIMS = Path(__file__).resolve().with_name("shims")
USAGE = "usage: serve.py [--stay] MODEL_FOLDER PORT [SGLANG FLAG ...]"

ENVIRONMENT = {
    # Selects SGLang's CPU platform.
    "SGLANG_USE_CPU_ENGINE": "1",
    # Many small operations: more threads spend their time on waiting for each other
    # (measured: 47 instead of 2,200 tokens/s at 16 streams with the default of all cores). A model
    # of a hundred million weights has larger ones.
    "OMP_NUM_THREADS": os.environ.get("TOOLWRIGHT_SAMPLER_THREADS", "1"),
    "HF_HUB_OFFLINE": "1",
    # Compiling wants a C++ compiler and a minute of the start.
    "TORCH_COMPILE_DISABLE": "1",
    # Else a file of the user's in the working folder, such as sglang.py, is taken for a module.
    "PYTHONSAFEPATH": "1",
    # Else what the vision tower made of an image is kept under the image's hash alone, and no flush
    # drops it: an update of the tower's weights would change nothing of images seen before.
    "SGLANG_VLM_CACHE_SIZE_MB": "0",
    # Else /health generates a token, and hangs for as long as generation is paused.
    "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0",
}

FLAGS = {
    "--host": "127.0.0.1",
    "--device": "cpu",
    "--attention-backend": "torch_native",
    "--sampling-backend": "pytorch",
    # Attention backend of a vision model's image encoder; the other backends need a GPU.
    "--mm-attention-backend": "sdpa",
    # Used with --enable-lora alone; the other backends need a GPU.
    "--lora-backend": "torch_native",
    # The learner computes in float32 too: their log-probs agree to about 1e-6.
    "--dtype": "float32",
    # The pool's size is said in tokens; the fraction only has to be small enough for a laptop.
    "--mem-fraction-static": "0.1",
    "--max-total-tokens": "65536",
    "--max-running-requests": "128",
    # One prefill step takes a whole burst of short prompts.
    "--chunked-prefill-size": "16384",
    # Warnings and errors only: a line for every request is a tenth of the front process's time.
    "--log-level": "warning",
}
SWITCHES = (
    # Each chunk carries what is new, not all from the start: the wire that the engine reads.
    "--incremental-streaming-output",
    # There is no device to overlap with: it costs a thread and a step of delay.
    "--disable-overlap-schedule",
    # Else its loop spins while there is nothing to do, on a core that the learner could use.
    "--sleep-on-idle",
)

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def refuse(sentence: str) -> NoReturn:
    print(f"serve.py: {sentence}", file=sys.stderr)
    raise SystemExit(2)


def command(python: Path, model: Path, port: int, extra: list[str]) -> list[str]:
    """The server's command line; `extra` stands last, where argparse lets it win."""
    flags = [part for flag in FLAGS.items() for part in flag]
    return [
        *(str(python), "-m", "announced_server"),
        *("--model-path", str(model), "--port", str(port)),
        *(*flags, *SWITCHES, *extra),
    ]


def host_of(extra: list[str]) -> str:
    """Where the server will listen: the last --host counts."""
    host = FLAGS["--host"]
    for at, flag in enumerate(extra):
        name, _, value = flag.partition("=")
        if name == "--host":
            host = value or "".join(extra[at + 1 : at + 2])
    return host


def probe(host: str, port: int) -> None:
    """Refuses a port that is in use, before a minute of loading."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
        try:
            one.bind((host, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                refuse(f"cannot listen on {host}:{port} ({error.strerror}): choose another address")
            who = holder(port)
            refuse(
                f"port {port} is in use{f' by {who}' if who else ''}: end that, or choose another "
                "port and name it in sampler.endpoints"
            )


def holder(port: int) -> str:
    """The process that listens there; "" if the package that finds it is not beside this
    launcher."""
    sys.path.insert(0, str(where.HERE / "proto"))
    try:
        from toolwright.process.holder import holder_of
    except ImportError:
        return ""
    return holder_of(port)


def bind_life_to_starter(starter: int) -> None:
    """Ask the kernel for SIGKILL when the starter ends; the request survives exec.

    SIGKILL and not SIGTERM: SGLang answers SIGTERM by waiting for the requests in flight.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        refuse(f"prctl(PR_SET_PDEATHSIG) failed: {os.strerror(error)}; start it with --stay")
    if os.getppid() != starter:  # it ended before the kernel knew our wish
        raise SystemExit(1)


def main(arguments: list[str]) -> NoReturn:
    starter = os.getppid()
    stay = arguments[:1] == ["--stay"]
    match arguments[stay:]:
        case [model, port, *extra] if port.isdecimal() and 0 < int(port) < 65536:
            pass
        case _:
            refuse(USAGE)
    folder = Path(model).resolve()
    if not (folder / "config.json").is_file():
        refuse(f"{folder} is no model folder: it has no config.json")
    python = where.find()
    if python is None:
        looked = ", ".join(map(str, where.candidates()))
        refuse(
            f"SGLang's environment is missing ({looked}): run `make setup` in a checkout, "
            f"`toolwright install-sampler` elsewhere, or name its Python in {where.VARIABLE}"
        )
    probe(host_of(extra), int(port))
    if not stay:
        bind_life_to_starter(starter)
    if os.getpgrp() != os.getpid():
        os.setsid()
    ours = os.pathsep.join(filter(None, (str(SHIMS), os.environ.get("PYTHONPATH"))))
    environment = {
        **os.environ,
        **ENVIRONMENT,
        "PYTHONPATH": ours,
        "TOOLWRIGHT_SAMPLER_PID": str(os.getpid()),
    }
    print(f"serve.py: SGLang loads {folder}, which takes a minute at most", flush=True)
    os.execve(python, command(python, folder, int(port), extra), environment)


if __name__ == "__main__":
    main(sys.argv[1:])
