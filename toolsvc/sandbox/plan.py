"""The plan of a jail, made and checked once: program, interpreter, account, folders.

Invariants
- No plan runs foreign code outside a jail unless the operator set both options for it.
- The account is never root.
- Every missing part is reported in one sentence that names the fix.
"""

from __future__ import annotations

import os
import pwd
import shutil
from dataclasses import dataclass

from toolsvc.sandbox.config import Backend, SandboxConfig
from toolsvc.sandbox.errors import SandboxUnavailable
from toolwright.jail import firejail
from toolwright.jail.view import (
    ACCOUNTS,
    Account,
    View,
    account_of,
    folder_fault,
    own_account,
    prefixes,
)

_PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3")
_MOST_WORDS = 121
"""firejail takes fewer than 128, six of them for the interpreter."""
_PROGRAMS = {Backend.FIREJAIL: "firejail", Backend.BUBBLEWRAP: "bwrap"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JailPlan:
    """`folders`: real paths outside the system's own that the jail needs to see, read-only."""

    backend: Backend
    program: str
    python: str
    account: Account
    folders: tuple[str, ...]


def plan_jail(config: SandboxConfig) -> JailPlan:
    """Raises SandboxUnavailable if a part is missing."""
    program = _find_program(config)
    account = find_account(config)
    python = _find_python(config)
    folders = tuple(sorted({*prefixes(python), *map(os.path.realpath, config.packages)}))
    for folder in folders:
        if fault := folder_fault(folder, account):
            raise SandboxUnavailable(fault)
    if config.backend is Backend.FIREJAIL and program:
        _check_length(program, folders)
    return JailPlan(
        backend=config.backend,
        program=program,
        python=python,
        account=account,
        folders=folders,
    )


def _check_length(program: str, folders: tuple[str, ...]) -> None:
    """Raises SandboxUnavailable if firejail's command line would be too long: it names whatever
    lies beside the way to a folder."""
    words = len(firejail.command(program, View(folders=folders), 0))
    if words > _MOST_WORDS:
        raise SandboxUnavailable(
            f"firejail hides what lies beside {', '.join(folders)}, and takes at most "
            f"{_MOST_WORDS} words, not {words}: move the packages where less lies beside them, "
            "such as /opt, or take --sandbox bubblewrap"
        )


def is_sandboxed(config: SandboxConfig) -> bool:
    """False where the operator said twice that foreign code may do what its account may.
    Raises SandboxUnavailable if it was said once."""
    if config.allow_unsandboxed != (config.backend is Backend.NONE):
        raise SandboxUnavailable(
            "to run foreign code without a sandbox takes both --sandbox none and "
            "--allow-unsandboxed: give both, or neither"
        )
    return not config.allow_unsandboxed


def _find_program(config: SandboxConfig) -> str:
    backend = config.backend
    if not is_sandboxed(config):
        return ""
    found = shutil.which(_PROGRAMS[backend])
    if found is None:
        raise SandboxUnavailable(
            f"{_PROGRAMS[backend]} is not on PATH and foreign code is never run without it: "
            f"`apt-get install {backend}` as root, then start again"
        )
    return found


def _find_python(config: SandboxConfig) -> str:
    if config.python is not None:
        if not os.access(config.python, os.X_OK):
            raise SandboxUnavailable(
                f"the sandbox's interpreter {config.python} cannot be executed: "
                "name another with --sandbox-python"
            )
        return os.path.abspath(config.python)
    for path in _PYTHONS:
        if os.access(path, os.X_OK):
            return path
    raise SandboxUnavailable(
        f"the sandbox needs a Python of the system, and {' or '.join(_PYTHONS)} does not exist: "
        "`apt-get install python3`, or name one with --sandbox-python that every user can read"
    )


def find_account(config: SandboxConfig, accounts: tuple[str, ...] = ACCOUNTS) -> Account:
    """Account of foreign code. Where the service is root: the first of `accounts` that exists,
    unless the operator named another. Raises SandboxUnavailable if it does not exist."""
    if os.geteuid() != 0:
        if config.user is not None and config.user != pwd.getpwuid(os.geteuid()).pw_name:
            raise SandboxUnavailable(
                f"only root can run the sandbox as {config.user}: leave --sandbox-user out"
            )
        return own_account()
    wanted = accounts if config.user is None else (config.user,)
    found = account_of(wanted)
    if found is not None:
        if found.uid == 0:
            name = pwd.getpwuid(0).pw_name
            raise SandboxUnavailable(f"the sandbox must not run as root: --sandbox-user {name}")
        return found
    raise SandboxUnavailable(
        f"the service runs as root and there is no account {' or '.join(wanted)} for the sandbox: "
        f"`useradd --system --no-create-home {wanted[0]}` makes one"
    )
