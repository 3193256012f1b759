"""The plan of a jail, made and checked once: program, interpreter, account, folders.

Invariants
- No plan runs foreign code outside a jail unless the operator set both options for it.
- The account is never root.
- Every missing part is reported in one sentence that names the fix.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import stat
from dataclasses import dataclass

from toolsvc.sandbox.config import Backend, SandboxConfig
from toolsvc.sandbox.errors import SandboxUnavailable

_ACCOUNTS = ("toolwright", "games")
"""Accounts for a service that runs as root: its own account if it exists, else one that every Linux
has and that owns nothing of value. The account 65534 is not among them: firejail refuses it."""
_PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3")
_REPLACED = ("dev", "proc", "run", "tmp")
"""Top-level folders that each jail has for itself."""
_PROGRAMS = {Backend.FIREJAIL: "firejail", Backend.BUBBLEWRAP: "bwrap"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Account of a jail. `other`: not the account of the service, which has to change to it."""

    uid: int
    gid: int
    other: bool


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
    folders = tuple(sorted({*_prefixes(python), *map(os.path.realpath, config.packages)}))
    for folder in folders:
        _check_reachable(folder, account)
    return JailPlan(
        backend=config.backend,
        program=program,
        python=python,
        account=account,
        folders=folders,
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


def _prefixes(python: str) -> set[str]:
    """Folders of the interpreter's own files: beside the path as given and beside the target of a
    link."""
    found = {os.path.dirname(os.path.dirname(path)) for path in (python, os.path.realpath(python))}
    return {prefix for prefix in found if not f"{prefix}/".startswith("/usr/")}


def find_account(config: SandboxConfig, accounts: tuple[str, ...] = _ACCOUNTS) -> Account:
    """Account of foreign code. Where the service is root: the first of `accounts` that exists,
    unless the operator named another. Raises SandboxUnavailable if it does not exist."""
    if os.geteuid() != 0:
        if config.user is not None and config.user != pwd.getpwuid(os.geteuid()).pw_name:
            raise SandboxUnavailable(
                f"only root can run the sandbox as {config.user}: leave --sandbox-user out"
            )
        return Account(uid=os.geteuid(), gid=os.getegid(), other=False)
    wanted = accounts if config.user is None else (config.user,)
    for name in wanted:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            if entry.pw_uid == 0:
                raise SandboxUnavailable(f"the sandbox must not run as root: --sandbox-user {name}")
            return Account(uid=entry.pw_uid, gid=entry.pw_gid, other=True)
    raise SandboxUnavailable(
        f"the service runs as root and there is no account {' or '.join(wanted)} for the sandbox: "
        f"`useradd --system --no-create-home {wanted[0]}` makes one"
    )


def _check_reachable(folder: str, account: Account) -> None:
    """Checks only the permission bits, because the service may be root and the account may not."""
    if not os.path.isdir(folder):
        raise SandboxUnavailable(
            f"the folder {folder}, which the sandbox shall read, does not exist"
        )
    if folder.split("/")[1] in _REPLACED:
        raise SandboxUnavailable(
            f"{folder} cannot be seen in a sandbox, which has a /{folder.split('/')[1]} of its "
            "own: put it where every user can read it, such as below /opt"
        )
    at = folder
    while True:
        status = os.stat(at)
        wanted = stat.S_IXOTH if at != folder else stat.S_IROTH | stat.S_IXOTH
        if status.st_uid == account.uid:
            wanted <<= 6
        elif status.st_gid == account.gid:
            wanted <<= 3
        if status.st_mode & wanted != wanted:
            name = pwd.getpwuid(account.uid).pw_name
            raise SandboxUnavailable(
                f"the sandbox's account {name} cannot read {folder} because of the permissions "
                f"of {at}: put it where every user can read it, such as below /opt"
            )
        if at == "/":
            return
        at = os.path.dirname(at)
