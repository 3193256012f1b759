"""Checks of this installation: Python, packages, torch, SGLang's environment, the sandbox."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from console.doctor.types import Finding, Findings, Patient, ok, problem, unknown, warning
from console.errors import NothingStarted
from console.machine.programs import ask, module
from console.machine.versions import sampler_versions, version_of
from toolwright.process.packaged import packaged

NEEDED = ("engine", "toolsvc", "learner", "console")
"""Extras that a run on this machine takes."""
TESTED = "constraints/toolwright.txt"
TESTED_SAMPLER = "constraints/sampler-cpu.txt"
SHOWN = 6
INSTALL = "toolwright install-sampler"
_TORCH = (
    "import torch;"
    "print(torch.__version__, torch.version.cuda or '-', torch.cuda.is_available(),"
    " torch.cuda.device_count() if torch.cuda.is_available() else 0)"
)


def python(_patient: Patient) -> Findings:
    yield ok("Python", f"Python {platform.python_version()} at {sys.executable}")
    if sys.prefix == sys.base_prefix:
        sentence = "Toolwright is installed into the system's own Python"
        yield warning("Python", sentence, "python3 -m venv .venv, and install it there")
    if sys.flags.optimize:
        yield warning("Python", "PYTHONOPTIMIZE takes assertions away", "unset PYTHONOPTIMIZE")


def packages(_patient: Patient) -> Findings:
    """Packages that each extra lacks, and versions other than the tested ones."""
    from packaging.requirements import Requirement

    wanted = [Requirement(line) for line in metadata.requires("toolwright") or ()]

    def lacks(extra: str) -> list[str]:
        mine = [one for one in wanted if one.marker and one.marker.evaluate({"extra": extra})]
        return [one.name for one in mine if not version_of(one.name)]

    whole = True
    for extra in NEEDED:
        if gone := lacks(extra):
            whole = False
            level = problem if extra == "console" else warning
            sentence = f"the extra {extra} is not whole: {_listed(gone)} missing"
            yield level("packages", sentence, f"pip install 'toolwright[{extra}]'")
    if whole:
        yield ok("packages", f"the packages of {', '.join(NEEDED)}")
    have = {one.name: version_of(one.name) for one in wanted}
    fix = f"pip install -c {packaged(TESTED)} 'toolwright[all]'"
    yield from _untested("packages", have, pins(packaged(TESTED)), fix)


def torch(_patient: Patient) -> Findings:
    version = version_of("torch")
    if not version:
        sentence = "torch is not installed, so no learner runs here"
        yield warning("torch", sentence, "pip install 'toolwright[learner]'")
        return
    said = ask((sys.executable, "-P", "-c", _TORCH), seconds=40.0)
    if said.status is None:
        # A busy machine is no broken installation.
        sentence = f"torch {version}: {said.last_line}, so it is not known whether it works"
        yield unknown("torch", sentence, "run the doctor again when this machine has less to do")
        return
    if said.status != 0:
        fix = "pip install --force-reinstall 'toolwright[learner]'"
        yield problem("torch", f"torch {version} cannot be imported: {said.last_line}", fix)
        return
    name, cuda, available, count = said.out.split()[-4:]
    gpu = any(Path("/dev").glob("nvidia[0-9]*"))
    build = "a CPU build" if cuda == "-" else f"CUDA {cuda}"
    if gpu and cuda == "-":
        fix = "pip install --force-reinstall torch, from PyPI's own index"
        yield warning("torch", f"there is a GPU, and torch {name} has no CUDA", fix)
    elif gpu and available != "True":
        fix = "nvidia-smi tells whether the driver works; it must be new enough for that CUDA"
        yield problem("torch", f"torch {name} has CUDA {cuda} and reaches no GPU", fix)
    else:
        yield ok("torch", f"torch {name}, {build}, {count} GPUs")


def sampler_environment(patient: Patient) -> Findings:
    from console.course.commands import sampler_python
    from console.machine import sampler_home

    subject, setup = "sampler's environment", patient.setup
    if setup is not None and setup.table.sampler.way == "none":
        yield ok(subject, "[console.sampler] way = none: no sampler is started here")
        return
    try:
        python = sampler_python(setup) if setup is not None else sampler_home.find()
    except NothingStarted as error:
        yield problem(subject, str(error), INSTALL)
        return
    if python is None:
        sentence = f"there is no SGLang for this machine ({sampler_home.usual()})"
        yield warning(subject, f"{sentence}, so no sampler can be started", INSTALL)
        return
    have = sampler_versions(python)
    if "sglang" not in have:
        yield problem(subject, f"{python} has no SGLang", INSTALL)
        return
    yield ok(subject, f"{', '.join(' '.join(one) for one in have.items())}, at {python}")
    if setup is None or setup.table.sampler.way == "cpu":
        yield from _untested(subject, have, pins(packaged(TESTED_SAMPLER)), INSTALL)


def sandbox(_patient: Patient) -> Findings:
    """The sandboxes of tools that run foreign code, and their levels, as `toolsvc` reports them."""
    said = ask(module("toolsvc.cli", "isolation", "--json"), seconds=40.0)
    try:
        levels = json.loads(said.out)
    except ValueError:
        level = unknown if said.status is None else warning
        sentence = f"`toolsvc isolation` gives no answer: {said.last_line}"
        yield level("sandbox", sentence, "pip install 'toolwright[toolsvc]'")
        return
    holds = [name for name, answer in levels.items() if answer["level"]]
    for name in holds:
        yield ok("sandbox", f"{name}: isolation level {levels[name]['level']} holds")
    # firejail is the default, so its sentence is the one that `toolsvc serve` would say.
    why, _, fix = str(levels["firejail"]["why"]).partition(": ")
    if not holds:
        yield warning("sandbox", f"no sandbox holds foreign code: {why}", fix)
    elif "firejail" not in holds:
        fix = "add --sandbox bubblewrap to `toolsvc serve`, or `apt-get install firejail` as root"
        yield warning("sandbox", "firejail, the default, does not hold; bubblewrap does", fix)


def pins(file: Path) -> dict[str, str]:
    """Package to version of a file of NAME==VERSION lines, for this Python. Raises OSError."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    lines = (line.partition("#")[0].strip() for line in file.read_text("utf-8").splitlines())
    pinned = [Requirement(line) for line in lines if "==" in line and not line.startswith("-")]
    return {
        canonicalize_name(one.name): str(one.specifier).removeprefix("==")
        for one in pinned
        if one.marker is None or one.marker.evaluate()
    }


def _untested(
    subject: str, have: dict[str, str], tested: dict[str, str], fix: str
) -> Iterator[Finding]:
    """A build's own mark (+cpu) does not count."""
    differ = [
        f"{name} {version} (tested {tested[name]})"
        for name, version in sorted(have.items())
        if version and name in tested and version.partition("+")[0] != tested[name]
    ]
    if differ:
        yield warning(subject, f"other versions than the tested ones: {_listed(differ)}", fix)


def _listed(words: list[str]) -> str:
    more = f" and {len(words) - SHOWN} more" if len(words) > SHOWN else ""
    return ", ".join(words[:SHOWN]) + more
