"""`verification.toml`: how a task's tests are run, and which statuses or files give the reward."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Literal

from pydantic import BaseModel, Field, model_validator

from toolsvc.plugin.tool import STRICT
from toolsvc.tools.swe.verifying.logs.statuses import PASSED, SKIPPED
from toolsvc.tools.swe.verifying.report import REWARD_FILES, Report
from toolsvc.tools.swe.verifying.tampering import PROTECTED

_NOT_RUN = "not run"


class VerificationFile(BaseModel):
    """`verification.toml`. Lists of tests that must pass, the whole map of statuses, or files that
    hold the reward."""

    model_config = STRICT

    command: str = Field(description="runs the tests, in the repository's folder")
    report: Report = Field(
        description="whose output is read: pytest -rA, unittest -v, a published set's format; or "
        "reward_files, and the output is not read"
    )
    reward_files: tuple[str, ...] = Field(
        default=(), description="files into which the command writes the reward, from 0 to 1"
    )
    image: str = Field(default="", description="the container's, before that of the task")
    seconds: float = Field(default=300.0, gt=0, description="for the command")
    fail_to_pass: tuple[str, ...] = Field(default=(), description="tests that the fix makes pass")
    pass_to_pass: tuple[str, ...] = Field(default=(), description="tests that must go on passing")
    expected: dict[str, str] | None = Field(
        default=None, description="every test's status, as R2E-Gym's expected_output_json has it"
    )
    skipped_passes: bool = Field(
        default=False, description="a pass_to_pass test may be skipped, as in SWE-bench's harness"
    )
    hidden: tuple[str, ...] = Field(
        default=(),
        description="paths that leave the policy's box: absolute, or in the repository",
    )
    hide_history: bool = Field(
        default=False, description="the policy's repository has one commit, and no later or earlier"
    )
    edited_tests: Literal["refused", "replaced"] = Field(
        default="refused",
        description="a submission that changes files of the verification gets 0, or loses that",
    )
    config: str | None = Field(
        default=None,
        pattern=r"^[\w.][\w./-]*$",
        description="file of pytest's settings, if not the one that pytest finds at the tree's top",
    )
    protected: tuple[str, ...] = Field(
        default=PROTECTED, description="patterns of files that a submission must not touch"
    )

    @model_validator(mode="after")
    def _something_to_judge(self) -> VerificationFile:
        if bool(self.reward_files) != (self.report == REWARD_FILES):
            raise ValueError("give reward_files with report = 'reward_files', and only then")
        if self.reward_files:
            if self.fail_to_pass or self.pass_to_pass or self.expected is not None:
                raise ValueError("reward_files: leave fail_to_pass, pass_to_pass and expected out")
        elif (self.expected is None) == (not self.fail_to_pass):
            raise ValueError("give fail_to_pass (and pass_to_pass), or expected")
        return self

    @model_validator(mode="after")
    def _paths(self) -> VerificationFile:
        for key, paths in (("hidden", self.hidden), ("reward_files", self.reward_files)):
            for path in paths:
                if not path.strip("/.") or "\0" in path or ".." in PurePosixPath(path).parts:
                    raise ValueError(f"{key}: {path!r} is not a path of something in the image")
        return self

    def unmet(self, statuses: Mapping[str, str]) -> dict[str, str]:
        """Tests that came out otherwise than wanted, and how; the others solve the task.

        With `expected`, a test that it does not name is one of them.
        """
        names, must_pass = sorted(statuses), set(self.fail_to_pass)
        found = {}
        for test, wanted in self.wanted.items():
            status = self._status_of(test, statuses, names)
            skipped = self.skipped_passes and status == SKIPPED and test not in must_pass
            if status != wanted and not skipped:
                found[test] = status
        if self.expected is not None:
            found |= {test: statuses[test] for test in names if test not in self.expected}
        return found

    def _status_of(self, test: str, statuses: Mapping[str, str], names: Sequence[str]) -> str:
        """Some names in SWE-bench's lists end inside a parameter, without its bracket. Such a
        name stands for all tests that begin with it, if they agree. names: sorted."""
        if test in statuses or self.expected is not None or test.count("[") <= test.count("]"):
            return statuses.get(test, _NOT_RUN)
        found = set()
        for place in range(bisect_left(names, test), len(names)):
            if not names[place].startswith(test):
                break
            found.add(statuses[names[place]])
        return found.pop() if len(found) == 1 else _NOT_RUN

    @property
    def wanted(self) -> dict[str, str]:
        if self.expected is not None:
            return self.expected
        return dict.fromkeys((*self.fail_to_pass, *self.pass_to_pass), PASSED)

    def holds(self, statuses: Mapping[str, str]) -> bool:
        return not self.unmet(statuses)
