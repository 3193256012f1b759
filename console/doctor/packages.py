"""Python, the packages of each extra, and the build of torch."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from console.doctor.types import Check, Finding, Findings, Patient, ok, problem, unknown, warning
from console.machine.programs import ask
from toolwright.process.packaged import packaged

PYTHON = "Python"
PACKAGES = "packages"
TORCH = "torch"
NEEDED = ("engine", "toolsvc", "learner", "console")
"""Extras that a run on this machine takes; the others are of single tools and ways."""
OTHERS = ("image", "browser", "encoder", "kubernetes", "mcp", "ray", "wandb", "mlflow")
TESTED = "constraints/toolwright.txt"
SHOWN = 6
_TORCH = (
    "import torch;"
    "print(torch.__version__, torch.version.cuda or '-', torch.cuda.is_available(),"
    " torch.cuda.device_count() if torch.cuda.is_available() else 0)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """A requirement of this project. extra: "" where every installation has it."""

    name: str
    extra: str


def python(_patient: Patient) -> Findings:
    version = ".".join(map(str, sys.version_info[:3]))
    if not (3, 11) <= sys.version_info[:2] < (3, 13):
        mend = "make an environment with Python 3.11 or 3.12: python3.11 -m venv .venv"
        return [problem(PYTHON, f"Python {version} is not supported", mend)]
    found = [ok(PYTHON, f"Python {version} at {sys.executable}")]
    if sys.prefix == sys.base_prefix:
        sentence = "Toolwright is installed into the system's own Python"
        found.append(warning(PYTHON, sentence, "python3 -m venv .venv, and install it there"))
    if hasattr(sys, "gettrace") and sys.flags.optimize:
        found.append(
            warning(PYTHON, "PYTHONOPTIMIZE takes assertions away", "unset PYTHONOPTIMIZE")
        )
    return found


def packages(_patient: Patient) -> Findings:
    requirements = list(_requirements())
    found: list[Finding] = []
    for extra in NEEDED:
        lacks = [n.name for n in requirements if n.extra == extra and not _installed(n.name)]
        if lacks:
            level = problem if extra == "console" else warning
            sentence = f"the extra {extra} is not whole: {_listed(lacks)} missing"
            found.append(level(PACKAGES, sentence, f"pip install 'toolwright[{extra}]'"))
    away = [
        extra
        for extra in OTHERS
        if any(n.extra == extra and not _installed(n.name) for n in requirements)
    ]
    if away:
        text = f"not installed, and needed by single tools and ways only: {', '.join(away)}"
        found.append(ok(PACKAGES, text))
    found += _untested({n.name for n in requirements})
    if not any(one.mend for one in found):
        found.insert(0, ok(PACKAGES, "the packages of engine, toolsvc, learner and console"))
    return found


def torch(_patient: Patient) -> Findings:
    version = _installed("torch")
    if not version:
        sentence = "torch is not installed, so no learner runs here"
        return [warning(TORCH, sentence, "pip install 'toolwright[learner]'")]
    said = ask((sys.executable, "-P", "-c", _TORCH), seconds=40.0)
    if said.status is None:
        # A busy machine is no broken installation.
        sentence = f"torch {version}: {said.last_line}, so it is not known whether it works"
        return [unknown(TORCH, sentence, "ask again when this machine has less to do")]
    if said.status != 0:
        mend = "pip install --force-reinstall 'toolwright[learner]'"
        return [problem(TORCH, f"torch {version} cannot be imported: {said.last_line}", mend)]
    name, cuda, available, count = said.out.split()[-4:]
    gpu = any(Path("/dev").glob("nvidia[0-9]*"))
    if cuda == "-":
        found = [ok(TORCH, f"torch {name}, a CPU build")]
        if gpu:
            mend = "pip install --force-reinstall torch==2.13.0, from PyPI's own index"
            found.append(warning(TORCH, "there is a GPU, and this torch has no CUDA", mend))
        return found
    if available == "True":
        return [ok(TORCH, f"torch {name}, CUDA {cuda}, {count} GPUs")]
    if gpu:
        mend = "nvidia-smi tells whether the driver works; it has to be as new as that CUDA wants"
        return [problem(TORCH, f"torch {name} has CUDA {cuda} and reaches no GPU", mend)]
    return [ok(TORCH, f"torch {name}, CUDA {cuda}, on a machine without a GPU")]


def _untested(names: set[str]) -> Iterator[Finding]:
    """Versions beside those that were tested together."""
    try:
        tested = pins(packaged(TESTED))
    except (OSError, ValueError):
        return
    differ = [
        f"{name} {have} (tested {tested[name]})"
        for name in sorted(names)
        if name in tested and (have := _installed(name)) and not _same(have, tested[name])
    ]
    if differ:
        mend = f"pip install -c {packaged(TESTED)} 'toolwright[all]'"
        yield warning(PACKAGES, f"other versions than the tested ones: {_listed(differ)}", mend)


def pins(file: Path) -> dict[str, str]:
    """Package to version of a file of NAME==VERSION lines, for this Python. Raises OSError."""
    found = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        pin, _, marker = line.partition("#")[0].partition(";")
        name, equals, version = pin.strip().partition("==")
        if equals and for_this_python(marker):
            found[normal(name)] = version
    return found


def for_this_python(marker: str) -> bool:
    """Whether a requirement's marker admits this Python. Only `python_version` is read."""
    bound = re.search(r"python_version\s*(<|>=)\s*['\"]3\.(\d+)['\"]", marker)
    return bound is None or (sys.version_info.minor < int(bound[2])) == (bound[1] == "<")


def normal(name: str) -> str:
    """As package registries compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _requirements() -> Iterator[Needed]:
    for line in metadata.requires("toolwright") or ():
        named = re.match(r"[\w.-]+", line)
        extra = re.search(r"extra == ['\"]([\w.-]+)['\"]", line)
        if named and normal(named[0]) != "toolwright" and for_this_python(line):
            yield Needed(name=normal(named[0]), extra=extra[1] if extra else "")


def _installed(name: str) -> str:
    try:
        return str(metadata.version(name))
    except metadata.PackageNotFoundError:
        return ""


def _same(have: str, tested: str) -> bool:
    """A build's own mark (+cpu) does not count."""
    return have.partition("+")[0] == tested


def _listed(words: list[str]) -> str:
    more = f" and {len(words) - SHOWN} more" if len(words) > SHOWN else ""
    return ", ".join(words[:SHOWN]) + more


CHECKS = (
    Check(subject=PYTHON, look=python),
    Check(subject=PACKAGES, look=packages),
    Check(subject=TORCH, look=torch, seconds=45.0),
)
