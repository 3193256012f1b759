"""What a jail shows of the machine, and the account that it runs as."""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
from collections.abc import Sequence
from dataclasses import dataclass

ACCOUNTS = ("toolwright", "games")
"""Accounts for a service that runs as root: its own account if it exists, else one that every Linux
has and that owns nothing of value. The account 65534 is not among them: firejail refuses it."""
_REPLACED = ("dev", "proc", "run", "tmp")
"""Top-level folders that each jail has for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Account of a jail. `other`: not the account of the service, which has to change to it."""

    uid: int
    gid: int
    other: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a jail shows beside the system's programs and libraries."""

    folders: tuple[str, ...] = ()
    """Real paths outside the system's own, read-only."""
    own: str = ""
    """The one folder in /tmp, which the jail may write; "" = /tmp is empty and may be written."""
    etc: tuple[str, ...] = ()
    """Names of files in /etc, beside those that programs need to start."""
    loopback: bool = False
    """Internet sockets may be opened. They reach the jail's own loopback device alone."""


def own_account() -> Account:
    """The account of this process."""
    return Account(uid=os.geteuid(), gid=os.getegid(), other=False)


def account_of(names: Sequence[str]) -> Account | None:
    """The first of these accounts that exists, for a service that is root; None without one."""
    for name in names:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(uid=entry.pw_uid, gid=entry.pw_gid, other=True)
    return None


def jail_account() -> Account | None:
    """The account of this process, or one of `ACCOUNTS` if it is root; None without one."""
    return own_account() if os.geteuid() else account_of(ACCOUNTS)


def become(account: Account) -> list[str]:
    """Words before a command that change the account, by a program of util-linux. For Popen's own
    `user` Python would fork this process with its gRPC threads."""
    if not account.other:
        return []
    return [
        "/usr/bin/setpriv",
        f"--reuid={account.uid}",
        f"--regid={account.gid}",
        "--clear-groups",
    ]


def prefixes(program: str) -> set[str]:
    """Folders of a program's own files: beside the path as given and beside the target of a
    link."""
    found = {
        os.path.dirname(os.path.dirname(path)) for path in (program, os.path.realpath(program))
    }
    return {prefix for prefix in found if not f"{prefix}/".startswith("/usr/")}


def shown_folders(program: str, folders: Sequence[str]) -> tuple[str, ...]:
    """Folders that a jail has to show for a program: those of its installation, if it lies in a
    folder `bin`, and `folders`."""
    own = prefixes(program) if os.path.basename(os.path.dirname(program)) == "bin" else set()
    return tuple(sorted({*own, *folders}))


def folder_fault(folder: str, account: Account) -> str:
    """Why a jail of the account cannot show a folder, with the fix; "" if it can.

    Checks only the permission bits, because the service may be root and the account may not.
    """
    if not os.path.isdir(folder):
        return f"the folder {folder}, which the sandbox shall read, does not exist"
    if folder.split("/")[1] in _REPLACED:
        return (
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
            return (
                f"the sandbox's account {name} cannot read {folder} because of the permissions "
                f"of {at}: put it where every user can read it, such as below /opt"
            )
        if at == "/":
            return ""
        at = os.path.dirname(at)
