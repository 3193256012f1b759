"""The sandboxes of tools that run foreign code, and the levels that hold, as `toolsvc` says."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from console.doctor.types import Check, Finding, Findings, Patient, ok, problem, unknown, warning
from console.machine.programs import ask, module

SANDBOX = "sandbox"
SANDBOXED = ("python", "bash", "sql", "create_and_execute", "image", "browser")
"""Built-in tools that do not start without one."""
_SWITCHES = {
    "/proc/sys/user/max_user_namespaces": ("0", "sysctl user.max_user_namespaces=65536"),
    "/proc/sys/kernel/unprivileged_userns_clone": (
        "0",
        "sysctl kernel.unprivileged_userns_clone=1",
    ),
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": (
        "1",
        "sysctl kernel.apparmor_restrict_unprivileged_userns=0",
    ),
}
"""A kernel's switch, the value that denies user namespaces, and what allows them."""


def sandbox(patient: Patient) -> Findings:
    said = ask(module("toolsvc.cli", "isolation", "--json"), seconds=40.0)
    try:
        levels = json.loads(said.out)
    except ValueError:
        sentence = f"toolsvc could not be asked: {said.last_line}"
        level = unknown if said.status is None else warning
        return [level(SANDBOX, sentence, "pip install 'toolwright[toolsvc]'"), *_namespaces()]
    found: list[Finding] = []
    for name, answer in levels.items():
        if answer["level"]:
            found.append(ok(SANDBOX, f"{name}: isolation level {answer['level']} holds"))
    if not found:
        needed = problem if _is_needed(patient) else warning
        # firejail is the default, so its sentence is the one that `toolsvc serve` would say.
        why, _, mend = str(levels["firejail"]["why"]).partition(": ")
        mend = mend if shutil.which("firejail") is None else _allow(mend)
        return [needed(SANDBOX, f"no sandbox holds foreign code: {why}", mend), *_namespaces()]
    if not levels["firejail"]["level"] and "bubblewrap" not in _served(patient):
        sentence = "firejail, the default, does not hold; bubblewrap does"
        mend = "add --sandbox bubblewrap to `toolsvc serve`, or `apt-get install firejail` as root"
        found.append(warning(SANDBOX, sentence, mend))
    return [*found, *_namespaces()]


def _namespaces() -> Iterator[Finding]:
    for file, (denies, mend) in _SWITCHES.items():
        try:
            value = Path(file).read_text(encoding="utf-8").strip()
        except OSError:
            continue
        if value == denies:
            sentence = (
                f"user namespaces are denied by {Path(file).name} = {value}: levels full and "
            )
            yield warning(SANDBOX, f"{sentence}compat cannot hold", f"as root: {mend}")


def _allow(mend: str) -> str:
    return mend or "as root: sysctl user.max_user_namespaces=65536"


def _is_needed(patient: Patient) -> bool:
    words = _served(patient)
    return any(word in SANDBOXED or word.endswith(".py") for word in words)


def _served(patient: Patient) -> list[str]:
    """Words of everything that the recipe starts as a tool service."""
    if patient.recipe is None:
        return []
    served = [word for table in patient.recipe.shared.tools.values() for word in table.words]
    return served + [word for service in patient.console.services for word in service.run]


CHECKS = (Check(subject=SANDBOX, look=sandbox, seconds=45.0),)
