"""The repository as a trajectory finds it: the tree of a commit, and its history up to there.

Invariants
- Sources are below the operator's folder; a name that leads out of it is refused.
- What is later than the commit (its own fix, say) is not in the checkout: neither objects, refs nor
  logs, and nothing tells where the source lies.
- Nothing of a source is run, and a source is never changed.
- A checkout that several ask for at once is made once. Different ones
  wait for each other only where `AT_ONCE` are being made; that line is no part of their time.

A source is a repository's folder, a git bundle, or an archive (.tar, .tar.gz, ...) of either a
repository or a plain tree; a plain tree becomes the one commit of a new repository.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tarfile
from collections import OrderedDict
from pathlib import Path
from tempfile import TemporaryDirectory

from toolsvc.backends.single_flight import SingleFlight
from toolsvc.errors import Reason, Refused
from toolsvc.tools.files import Entry, TreeError, read_tree

_CACHE_BYTES = 512 * 1024 * 1024
_SECONDS = 120.0
AT_ONCE = 8
"""Checkouts that are being made: each is a git, which mostly waits for the disk, and a tree in
memory."""
_CONFIG = """\
[safe]
    directory = *
[uploadpack]
    allowAnySHA1InWant = true
[advice]
    detachedHead = false
[init]
    defaultBranch = main
[user]
    name = agent
    email = agent@localhost
"""


class Checkouts:
    """Makes checkouts, and keeps those that were asked for last."""

    def __init__(self, root: Path, limit: int) -> None:
        """`root`: folder of sources, or one source. `limit`: bytes of one checkout."""
        self._root = root.resolve()
        self._limit = limit
        self._made: OrderedDict[str, list[Entry]] = OrderedDict()
        self._flights: SingleFlight[list[Entry]] = SingleFlight()
        self._places = asyncio.Semaphore(AT_ONCE)

    async def get(self, repository: str, commit: str) -> list[Entry]:
        """The files of the checkout; `commit` "" = what the source has checked out. Raises Refused
        if there is no such source or commit."""
        source = below(self._root, repository, "repository")
        key = repr((str(source), commit, _changed(source)))
        made = self._made.get(key)
        if made is None:
            return await self._flights.do(key, lambda: self._keep(key, source, repository, commit))
        self._made.move_to_end(key)
        return made

    async def _keep(self, key: str, source: Path, name: str, commit: str) -> list[Entry]:
        async with self._places:
            made = self._made[key] = await self._make(source, name, commit)
        self._shrink()
        return made

    def _shrink(self) -> None:
        sizes = {key: _size(entries) for key, entries in self._made.items()}
        while len(sizes) > 1 and sum(sizes.values()) > _CACHE_BYTES:
            key, _ = self._made.popitem(last=False)
            del sizes[key]

    async def _make(self, source: Path, name: str, commit: str) -> list[Entry]:
        with TemporaryDirectory(prefix="checkout-") as folder:
            work = Path(folder)
            (work / "config").write_text(_CONFIG, encoding="utf-8")
            try:
                async with asyncio.timeout(_SECONDS):
                    tree = await _check_out(source, commit, work)
                return await asyncio.to_thread(read_tree, tree, self._limit)
            except (OSError, tarfile.TarError, TreeError, _GitFailed, TimeoutError) as error:
                why = str(error).replace(str(work), "").strip() or f"slower than {_SECONDS:g} s"
                raise Refused(
                    Reason.INVALID_REQUEST,
                    f"repository {name!r} at {commit or 'its head'} cannot be checked out: {why}",
                    subject=name,
                ) from error


def below(root: Path, name: str, key: str) -> Path:
    """What the metadata's `key` names below the operator's folder. Raises Refused if it is
    elsewhere."""
    path = (root / name).resolve()
    if "\0" in name or not path.is_relative_to(root) or not path.exists():
        raise Refused(
            Reason.INVALID_REQUEST,
            f"metadata.{key} is {name!r}, and there is no such thing in the service's folder",
            subject=key,
            fix=f"give the name of what lies below {root}",
        )
    return path


async def _check_out(source: Path, commit: str, work: Path) -> Path:
    """A folder below `work`."""
    tree = work / "tree"
    kind = _kind(source)
    if kind == "archive":
        source = await asyncio.to_thread(unpack, source, work / "archive")
        if not _is_repository(source):
            return await _new_repository(source, commit, work)
    elif kind == "bundle":
        await _git(work, "clone", "-q", "--mirror", str(source), str(work / "mirror"))
        source = work / "mirror"
    wanted = f"{commit or 'HEAD'}^{{commit}}"
    where = ("-C", str(source), "rev-parse", "-q", "--verify", "--end-of-options")
    found = await _git(work, *where, wanted)
    await _git(work, "init", "-q", str(tree))
    await _git(work, "-C", str(tree), "fetch", "-q", "--no-tags", str(source), found)
    await _git(work, "-C", str(tree), "checkout", "-q", "-B", "main", "FETCH_HEAD")
    return await _tidied(tree, work)


def _kind(source: Path) -> str:
    if source.is_dir():
        return "folder"
    return "archive" if tarfile.is_tarfile(source) else "bundle"


def _is_repository(folder: Path) -> bool:
    return (folder / ".git").exists()


async def _new_repository(tree: Path, commit: str, work: Path) -> Path:
    if commit:
        raise _GitFailed("an archive without history has no commits: leave metadata.commit out")
    await _git(work, "init", "-q", str(tree))
    await _git(work, "-C", str(tree), "add", "-A", "-f")
    await _git(work, "-C", str(tree), "commit", "-q", "-m", "The tree of the task")
    return await _tidied(tree, work)


async def _tidied(tree: Path, work: Path) -> Path:
    for name in ("user.name", "user.email"):
        await _git(work, "-C", str(tree), "config", name, "agent")
    for name in ("FETCH_HEAD", "ORIG_HEAD"):
        (tree / ".git" / name).unlink(missing_ok=True)
    for name in ("hooks", "logs"):
        shutil.rmtree(tree / ".git" / name, ignore_errors=True)
    return tree


def unpack(archive: Path, folder: Path) -> Path:
    """The repository or tree in it: the one folder of the archive, or its top."""
    folder.mkdir()
    with tarfile.open(archive) as file:
        # What tarfile's filter "data" refuses, which Python has from 3.11.4 on only.
        file.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)
        for member in file:
            _check_member(member, folder)
            file.extract(member, folder)
    inner = list(folder.iterdir())
    one_folder = len(inner) == 1 and inner[0].is_dir() and inner[0].name != ".git"
    return inner[0] if one_folder else folder


def _check_member(member: tarfile.TarInfo, folder: Path) -> None:
    """Raises TarError unless it is a file, folder or link that stays below `folder`, in which the
    earlier members are already."""
    place = (folder / member.name).resolve()
    leads = [place]
    if member.islnk():
        leads.append((folder / member.linkname).resolve())
    elif member.issym():
        leads.append((place.parent / member.linkname).resolve())
    sort_is_known = member.isfile() or member.isdir() or member.islnk() or member.issym()
    if not sort_is_known or not all(one.is_relative_to(folder.resolve()) for one in leads):
        raise tarfile.TarError(f"{member.name} is no file, or leads out of the archive")
    member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
    member.mode = (member.mode & 0o755) | (0o700 if member.isdir() else 0o600)


class _GitFailed(Exception):
    """The message is git's."""


async def _git(work: Path, *arguments: str) -> str:
    """Output of a git command. Neither this account's configuration nor the machine's is read."""
    process = await asyncio.create_subprocess_exec(
        "git", *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": str(work),
            "GIT_CONFIG_GLOBAL": str(work / "config"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "LC_ALL": "C.UTF-8",
        },
    )  # fmt: skip
    try:
        output, errors = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        said = errors.decode("utf-8", "replace").strip()
        ended = f"git {' '.join(arguments[:3])} ended with {process.returncode}"
        raise _GitFailed(said or ended)
    return output.decode().strip()


def _changed(source: Path) -> int:
    """Time of the source's last change, in ns, as far as its files show."""
    places = (source, source / "HEAD", source / ".git" / "HEAD", source / ".git" / "logs" / "HEAD")
    return max(place.stat().st_mtime_ns for place in places if place.exists())


def _size(entries: list[Entry]) -> int:
    return sum(len(entry.content) for entry in entries)
