"""What ran: versions of Toolwright, its packages, the sampler's, and the machine."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import psutil

from console.machine import sampler_home

ROOT = Path(__file__).resolve().parents[2]
OURS = ("toolwright", "torch", "megatron-core", "mbridge", "transformers", "tokenizers", "grpcio",
        "protobuf", "aiohttp", "uvloop", "numpy")  # fmt: skip
SAMPLERS = ("sglang", "torch", "transformers")


def versions(packages: Sequence[str] = OURS) -> dict[str, str]:
    """Name to version of `packages` and of what they run on."""
    found = {"python": platform.python_version()}
    for name in packages:
        found[name] = version_of(name)
    found["firejail"] = _first_line("firejail", "--version").removeprefix("firejail version ")
    # A wheel in an environment within a checkout is not of that commit.
    if (ROOT / ".git").exists():
        found["commit"] = _first_line("git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD")
    return {name: version for name, version in found.items() if version}


def sampler_versions(python: Path | None) -> dict[str, str]:
    """Name to version of SGLang's packages in the environment of a Python, which is not started."""
    sites = python.parents[1].glob("lib/python*/site-packages") if python is not None else ()
    found = {name: version_of(name, site) for site in sites for name in SAMPLERS}
    return {name: version for name, version in found.items() if version}


def everything() -> dict[str, str]:
    """Versions here, those of the sampler's environment as sampler/NAME, and the machine."""
    sampler = sampler_versions(sampler_home.find())
    return versions() | {f"sampler/{name}": v for name, v in sampler.items()} | machine()


def machine() -> dict[str, str]:
    """What it ran on."""
    return {
        "system": platform.platform(terse=True),
        "processor": _processor(),
        "cores": str(len(psutil.Process().cpu_affinity())),
        "memory": f"{psutil.virtual_memory().total / 2**30:.1f} GiB",
    }


def version_of(name: str, site: Path | None = None) -> str:
    """The version of an installed package, here or in a folder of packages; "" without it."""
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
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()
