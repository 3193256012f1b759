"""The judgement of a submission: the operator's part of a task, and the run of its tests.

Invariants
- Nothing that a trajectory can reach decides: the submission is only the files that it changed in
  its repository, laid over a fresh box that it never saw, and the verifier's files over those.
- Whatever a submission does (hang, crash, flood, fill the memory) costs it the reward; only a
  failure to start or keep a box is not its own.
- The verifier's files are read on this side and are in no box that a policy's calls run in.
- An option names pytest's settings file (`settings`): no other file of the tree can be its
  settings.

What it cannot exclude: the code under test runs in the process of its tests, and may forge their
report from within.
"""

from __future__ import annotations

import asyncio
import stat
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import structlog
from pydantic import ValidationError

from toolsvc.errors import Reason, Refused
from toolsvc.tools.files import FILE_MODE, Entry, TreeError, read_tree
from toolsvc.tools.swe.boxes.box import Box, BoxError
from toolsvc.tools.swe.verifying.archives import Archives
from toolsvc.tools.swe.verifying.parser import BadTree
from toolsvc.tools.swe.verifying.patch import IN_BOX, application, archive_of
from toolsvc.tools.swe.verifying.report import PYTEST, hides_a_failure, read_report
from toolsvc.tools.swe.verifying.reward_files import (
    MOST_BYTES,
    NoReward,
    clearing,
    reading,
    reward_of,
)
from toolsvc.tools.swe.verifying.settings import pytest_file, pytest_options
from toolsvc.tools.swe.verifying.tampering import tampering
from toolsvc.tools.swe.verifying.tree import (
    Submission,
    archive_command,
    check_places,
    compare,
    without,
)
from toolsvc.tools.swe.verifying.verification_file import VerificationFile
from toolwright.reading.patches import changed_paths
from toolwright.reading.verification_folder import FILES, PATCH, SETTINGS
from toolwright.types import ToolErrorKind

_OUTPUT_BYTES = 16 * 1024 * 1024
_COPY_SECONDS = 60.0
_LIST = ".toolwright-removed"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Verification:
    """`overlay`: the verifier's own files, which go over the submission's. `patch`: a change of the
    repository's tests, which is made in the fresh box first; empty without one."""

    name: str
    file: VerificationFile
    overlay: tuple[Entry, ...]
    patch: str = ""

    @cached_property
    def patched_paths(self) -> frozenset[str]:
        """Paths of the files that the patch changes, adds, removes, or renames (by both names).

        Raises ValueError for a patch whose files cannot be read.
        """
        return frozenset(path for pair in changed_paths(self.patch) for path in pair)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`reward`: from 0 to 1. `why`: for the operator's log; the policy reads nothing of it.
    `seconds`: of the tests."""

    reward: float = 0.0
    why: str = ""
    passed: int = 0
    wanted: int = 0
    seconds: float = 0.0
    tampered: int = 0
    timed_out: bool = False


def read_verification(folder: Path, name: str, limit: int) -> Verification:
    """Raises Refused if it cannot be read: the operator has to fix it."""
    try:
        file = VerificationFile.model_validate(
            tomllib.loads((folder / SETTINGS).read_text("utf-8"))
        )
        files = read_tree(folder / FILES, limit) if (folder / FILES).exists() else []
        patch = (folder / PATCH).read_text("utf-8") if (folder / PATCH).exists() else ""
        # Without its folders: they are made with the files, and must not be cleared for them.
        overlay = tuple(entry for entry in files if not stat.S_ISDIR(entry.mode))
        read = Verification(name=name, file=file, overlay=overlay, patch=patch)
        _ = read.patched_paths
    except (OSError, ValueError, ValidationError, TreeError) as error:
        raise Refused(
            Reason.INVALID_REQUEST, f"verification {name!r}: {error}", subject=name
        ) from error
    return read


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxSetup:
    """Lines of bash for a box."""

    activation: str = ""
    """Before each command: activates the environment of the repository."""
    preparation: str = ""
    """Once, when the box starts; contains the activation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifier:
    """Verifies the submission of one session."""

    verification: Verification
    archives: Archives
    setup: BoxSetup
    session: str

    async def submitted_tree(self, box: Box) -> dict[str, Entry]:
        """The tree as the policy leaves it, after all that it left running has ended.

        Raises BadTree if it cannot be read, BoxGone, PoolFull, PoolDown.
        """
        try:
            await box.exec("kill -9 -1", limit=_COPY_SECONDS, keep=0)
            tree = await self._tree(box, archive_command())
        except BoxError as error:
            raise BadTree(str(error)) from error
        check_places(tree)
        return tree

    async def judge(self, fresh: Box, tree: dict[str, Entry]) -> Verdict:
        """Runs the tests on a submission in a box that holds the untouched repository.

        Raises BoxError, BoxGone, PoolFull or PoolDown for a failure that is not the submission's.
        """
        file = self.verification.file
        hidden = [path for path in file.hidden if not path.startswith(("/", "~"))]
        base = await self._tree(fresh, archive_command())
        overlay = await self._patched(fresh)
        overlay |= {entry.path: entry for entry in self.verification.overlay}
        config = _config(self.verification, base | overlay)
        if config in base:
            overlay.setdefault(config, base[config])
        ours = {*overlay, *hidden, *self.verification.patched_paths, *file.reward_files}
        submission = await asyncio.to_thread(compare, without(base, hidden), tree)
        if file.edited_tests == "replaced":
            written = {one.path: one for one in submission.written}
            submission = replace(
                submission,
                written=tuple(without(written, ours).values()),
                removed=tuple(without(dict.fromkeys(submission.removed), ours)),
            )
        touched = tampering(submission, ours, file.protected)
        wanted = len(file.wanted)
        if touched:
            why = f"it changed {', '.join(touched[:10])}"
            return Verdict(why=why, tampered=len(touched), wanted=wanted)
        try:
            await _lay(fresh, submission, list(overlay.values()))
        except BoxError as error:
            return Verdict(why=f"it cannot be laid out: {error}", wanted=wanted)
        return await self._run(fresh, config)

    async def _tree(self, box: Box, command: str) -> dict[str, Entry]:
        """The tree in the archive that the command writes to standard output."""
        data = await box.read(command, limit=_COPY_SECONDS, most=self.archives.most)
        return await self.archives.read(data, self.session)

    async def _patched(self, fresh: Box) -> dict[str, Entry]:
        """The files of the test patch, as they are after it. Raises BoxError if it does not apply:
        it is not of this image."""
        own = self.verification
        if not own.patch:
            return {}
        await fresh.write([Entry(IN_BOX, FILE_MODE, own.patch.encode())])
        try:
            await fresh.read(application(), limit=_COPY_SECONDS, most=0)
        except BoxError as error:
            raise BoxError(f"{PATCH} of {own.name!r} does not apply: {error}") from error
        return await self._tree(fresh, archive_of(own.patched_paths))

    async def _run(self, fresh: Box, config: str | None) -> Verdict:
        file = self.verification.file
        wanted = len(file.wanted)
        command = self.setup.activation + file.command
        if file.report in PYTEST:
            command = f"{pytest_options(config)}\n{command}"
        if file.reward_files:
            command = clearing(file.reward_files) + command
        started = time.perf_counter()
        try:
            ran = await fresh.exec(command, limit=file.seconds, keep=_OUTPUT_BYTES)
        except BoxError as error:
            return Verdict(why=f"the tests could not begin: {error}", wanted=wanted)
        seconds = time.perf_counter() - started
        output = ran.output.decode("utf-8", "replace")
        why, reward = "", 1.0
        statuses: dict[str, str] = {}
        unmet: dict[str, str] = {}
        if not file.reward_files:
            statuses, unmet = await asyncio.to_thread(_judged, file, output)
        if ran.kind is not ToolErrorKind.NONE or ran.dropped:
            ended = "too much output" if ran.dropped else ran.kind.name
            why = f"the tests ended: {ran.lost or ended}"
        elif file.reward_files:
            try:
                reward = await _written_reward(fresh, file.reward_files)
            except (BoxError, NoReward) as error:
                why = f"no reward: {error}"
                log.info("not rewarded", why=why, exit_code=ran.code, tail=output[-500:])
        elif hides_a_failure(file.report, ran.code, statuses):
            why = "the tests ended with exit code 1, and their log reports no failure"
        elif unmet:
            why = ", ".join(f"{test}: {status}" for test, status in list(unmet.items())[:10])
            log.info("not solved", why=why, exit_code=ran.code, tail=output[-500:])
        return Verdict(
            reward=0.0 if why else reward,
            why=why,
            passed=len(file.wanted.keys() - unmet.keys()),
            wanted=wanted,
            seconds=seconds,
            timed_out=ran.kind is ToolErrorKind.TIMEOUT,
        )


def _config(verification: Verification, tree: dict[str, Entry]) -> str | None:
    """The file of pytest's settings; None without such a file. Raises Refused if it is named and
    not in the operator's tree: a submission could bring it."""
    file = verification.file
    if file.report not in PYTEST:
        return None
    if file.config is not None and file.config not in tree:
        raise Refused(
            Reason.INVALID_REQUEST,
            f"verification {verification.name!r}: its config {file.config!r} is no file of the "
            "repository",
            subject=verification.name,
            fix="put it into the verification's files, or correct its name",
        )
    return file.config or pytest_file(tree)


async def _lay(fresh: Box, submission: Submission, overlay: Sequence[Entry]) -> None:
    """What was there goes first, so that nothing is written through a link."""
    paths = (*submission.paths, *(entry.path for entry in overlay))
    gone = "\0".join(paths).encode("utf-8", "surrogateescape")
    await fresh.write([Entry(_LIST, FILE_MODE, gone)])
    remove = f"xargs -0 rm -rf -- < {_LIST} && rm {_LIST}"
    await fresh.read(remove, limit=_COPY_SECONDS, most=0)
    await fresh.write([*submission.written, *overlay])


async def _written_reward(fresh: Box, paths: Sequence[str]) -> float:
    """The reward that the command left, after all that it left running has ended. Raises BoxError,
    NoReward."""
    await fresh.exec("kill -9 -1", limit=_COPY_SECONDS, keep=0)
    contents = [
        (path, await fresh.read(reading(path), limit=_COPY_SECONDS, most=MOST_BYTES + 2))
        for path in paths
    ]
    return reward_of(contents)


def _judged(file: VerificationFile, output: str) -> tuple[dict[str, str], dict[str, str]]:
    """(statuses of the log, those that came out otherwise than wanted)"""
    statuses = read_report(file.report, output)
    return statuses, file.unmet(statuses)
