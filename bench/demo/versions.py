"""What ran: versions of Toolwright, its packages, the sampler's, and the machine."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import psutil

from bench.demo.commands import ROOT

OURS = ("toolwright", "torch", "megatron-core", "mbridge", "transformers", "tokenizers", "grpcio",
        "protobuf", "aiohttp", "uvloop", "numpy")  # fmt: skip
SAMPLERS = ("sglang", "torch", "transformers")


def versions() -> Mapping[str, str]:
    """Name to version; packages of the sampler's environment are written sampler/NAME."""
    found = {"python": platform.python_version()}
    for name in OURS:
        found[name] = _version(name, None)
    for site in sorted((ROOT / ".venv-sglang/lib").glob("python*/site-packages")):
        for name in SAMPLERS:
            found[f"sampler/{name}"] = _version(name, site)
    found["firejail"] = _first_line("firejail", "--version").removeprefix("firejail version ")
    found["commit"] = _first_line("git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD")
    found["system"] = platform.platform(terse=True)
    found["processor"] = _processor()
    found["cores"] = str(len(psutil.Process().cpu_affinity()))
    found["memory"] = f"{psutil.virtual_memory().total / 2**30:.1f} GiB"
    return {name: version for name, version in found.items() if version}


def _version(name: str, site: Path | None) -> str:
    path = sys.path if site is None else [str(site)]
    for distribution in metadata.distributions(name=name, path=path):
        return str(distribution.version)
    return ""


def _first_line(*argv: str) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=10)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.partition("\n")[0].strip() if done.returncode == 0 else ""


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()
