"""The `swe` tool: the text for the policy, and the result of a submission.

A session's box is started when the session is opened, so the time for it is the opening's, and no
call's.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Mapping
from typing import Any

import structlog

from toolsvc.confined.errors import CannotStart, PoolDown, PoolFull
from toolsvc.errors import Reason, Refused, StartError, backend_down
from toolsvc.plugin.registry import missing
from toolsvc.plugin.results import invalid
from toolsvc.plugin.tool import Cancellation, LiveState, OutOfProcess, Tool
from toolsvc.sandbox.config import MIB, SandboxConfig
from toolsvc.sandbox.jailed.drivers.terminal import as_shown
from toolsvc.sandbox.jailed.drivers.texts import EditFailed
from toolsvc.tools.function_call import CLOSING
from toolsvc.tools.swe.action import find_call
from toolsvc.tools.swe.arguments import SweArguments
from toolsvc.tools.swe.boxes.box import Box, BoxError, BoxGone, CommandRun, Runner
from toolsvc.tools.swe.boxes.cli import CliRunner
from toolsvc.tools.swe.boxes.local import LocalRunner
from toolsvc.tools.swe.boxes.starts import Starts
from toolsvc.tools.swe.editor import Editor
from toolsvc.tools.swe.options import RunnerKind, SweOptions
from toolsvc.tools.swe.preparation import activation, hiding
from toolsvc.tools.swe.tasks import Task, Tasks
from toolsvc.tools.swe.verifying.archives import Archives
from toolsvc.tools.swe.verifying.parser import BadTree
from toolsvc.tools.swe.verifying.verification import BoxSetup, Verdict, Verification, Verifier
from toolsvc.types import Call, Descriptor, RawFormat, Result, SessionInfo, Text, ToolError
from toolwright.types import ToolErrorKind

_LOST = "the session and its files are lost"

log = structlog.get_logger(__name__)


class _Trajectory(LiveState):
    """A session's state. `box` is None once its task was submitted."""

    def __init__(self, task: Task, box: Box, start_seconds: float) -> None:
        self.task = task
        self.box: Box | None = box
        self.editor = Editor(box)
        self.start_seconds = start_seconds

    @property
    def lost(self) -> str | None:
        return None if self.box is None else self.box.gone


class SweTool(Tool):
    Config = SweOptions
    executor = OutOfProcess
    name = "swe"
    description = (
        "Views and edits the files of a repository, runs commands in it, and submits the result "
        "to its tests."
    )
    usage = (
        "<function=NAME>\n<parameter=KEY>VALUE</parameter>\n</function>\n"
        "Functions, which all begin in the repository's folder:\n"
        "execute_bash: command. Runs it in a fresh bash; standard input is empty.\n"
        "search: search_term, path (a file or folder, optional). Shows the lines that hold it.\n"
        "file_editor: command and path. view (view_range: [first, last]) shows a file or folder; "
        "create (file_text), str_replace (old_str, which occurs once, new_str), insert "
        "(insert_line, new_str) and undo change a file.\n"
        "submit: no parameters. Ends the task; hidden tests judge it. Whoever changes tests or the "
        "configuration of the test runner fails."
    )
    arguments = SweArguments
    format = RawFormat()
    stop_strings = (CLOSING,)
    stateful = True
    run_limit = 90.0

    def __init__(self, config: SweOptions, sandbox: SandboxConfig | None = None) -> None:
        super().__init__(config)
        sandbox = sandbox or SandboxConfig()
        self._runner = make_runner(config, sandbox)
        self._tasks = Tasks(
            repositories=config.repositories,
            verifications=config.verifications,
            image=config.image,
            images=config.images,
            containers=config.runner is not RunnerKind.LOCAL,
            limit=config.tree_mib * 2 * MIB,  # with its history
        )
        self._starts = Starts(self._runner, most=config.starting, limit=config.start_seconds)
        self._verifying = asyncio.Semaphore(config.verifying)
        self._output_bytes = config.output_kib * 1024
        self._archives = Archives(config.tree_mib * MIB, sandbox)
        self._denied = _denial(config.denied)
        active = activation(config.environment)
        setup = f"(\n{config.setup}\n) || exit 1\n"
        self._setup = BoxSetup(
            activation=active, preparation=active + setup if config.setup else ""
        )

    async def start(self) -> None:
        try:
            await self._archives.start()
        except CannotStart as error:
            raise StartError(f"swe cannot read submissions here: {error}") from error
        try:
            await self._runner.start()
        except BaseException:
            await self._archives.close()
            raise
        self.isolation = self._runner.isolation

    async def stop(self) -> None:
        try:
            await self._runner.stop()
        finally:
            await self._archives.close()

    def figures(self) -> Mapping[str, float]:
        return self._starts.figures()

    async def open(self, session: SessionInfo) -> _Trajectory:
        task = await self._tasks.read(session.metadata)
        preparation = self._setup.preparation
        if task.verification is not None:
            file = task.verification.file
            preparation += hiding(file.hidden, history=file.hide_history)
        return _Trajectory(task, *await self._starts.start(task.image, task.checkout, preparation))

    async def close(self, state: _Trajectory) -> None:
        if state.box is not None:
            await state.box.close()

    def parse(self, action: str, descriptor: Descriptor) -> dict[str, Any]:
        return find_call(action)

    async def run(self, state: _Trajectory, call: Call, cancellation: Cancellation) -> Result:
        if state.box is None:
            return invalid("the task was submitted: it is over")
        try:
            if call.arguments["function"] == "submit":
                return await self._submit(state, state.box, call.session.session_id)
            if call.arguments["function"] == "file_editor":
                return Result.of(await state.editor.edit(call.arguments, call.run_limit))
            command = _command(call.arguments)
            refused = self._denied.search(command)
            if refused and call.arguments["function"] == "execute_bash":
                return invalid(f"execute_bash refuses {refused[1]}")
            if call.arguments["function"] == "execute_bash":
                command = self._setup.activation + command
            ran = await state.box.exec(
                command, limit=call.run_limit, keep=self._output_bytes, cancellation=cancellation
            )
        except EditFailed as error:
            if state.box.broken is not None:
                return _failed(str(error), lost=True)
            return Result.of(str(error))  # the policy reads it, as of a command that failed
        except BoxError as error:
            return _failed(str(error), lost=state.box.broken is not None)
        except BoxGone as error:
            raise Refused(Reason.SESSION_LOST, f"the box was lost: {error}") from error
        return as_result(ran, call.run_limit)

    async def _submit(self, state: _Trajectory, box: Box, session: str) -> Result:
        metrics = {"start_seconds": state.start_seconds}
        verification = state.task.verification
        reward = None
        if verification is not None:
            async with self._verifying:
                verdict = await self._verdict(state.task, box, verification, session)
            log.info("verified", verification=verification.name, verdict=verdict)
            reward = verdict.reward
            metrics |= {
                "tests_passed": verdict.passed,
                "tests_wanted": verdict.wanted,
                "tests_seconds": verdict.seconds,
                "tampered_files": verdict.tampered,
                "verification_timeout": float(verdict.timed_out),
            }
        state.box = None
        await box.close()
        return Result.of("Submitted.", done=True, reward=reward, metrics=metrics)

    async def _verdict(
        self, task: Task, box: Box, verification: Verification, session: str
    ) -> Verdict:
        verifier = Verifier(
            verification=verification, archives=self._archives, setup=self._setup, session=session
        )
        try:
            tree = await verifier.submitted_tree(box)
        except (PoolFull, PoolDown) as error:
            raise backend_down(f"the submission could not be read: {error}") from error
        except BadTree as error:
            return Verdict(why=f"its tree cannot be read: {error}")
        fresh, _ = await self._starts.start(task.image, task.checkout, self._setup.preparation)
        try:
            return await verifier.judge(fresh, tree)
        except (BoxError, BoxGone, BadTree, PoolFull, PoolDown) as error:
            raise backend_down(f"the verification could not be run: {error}") from error
        finally:
            await fresh.close()


def make_runner(options: SweOptions, sandbox: SandboxConfig) -> Runner:
    """Raises StartError if its packages are missing."""
    if options.runner is RunnerKind.LOCAL:
        return LocalRunner(sandbox)
    limits = options.limits(sandbox)
    if options.runner is RunnerKind.KUBERNETES:
        try:
            from toolsvc.tools.swe.boxes.kubernetes import KubernetesRunner
        except ImportError as error:
            raise StartError(missing("swe", error)) from error
        return KubernetesRunner(options.namespace, limits, options.folder)
    return CliRunner(options.runner, limits, options.folder)


def _command(arguments: Mapping[str, Any]) -> str:
    if arguments["function"] == "execute_bash":
        return str(arguments["command"])
    term, path = shlex.quote(arguments["search_term"]), shlex.quote(arguments["path"] or ".")
    found = f"grep -rnIF --exclude-dir=.git -e {term} -- {path} | cut -c 1-300 | head -n 100"
    return f"{found}; [ ${{PIPESTATUS[0]}} != 1 ] || echo nothing found"


def _denial(programs: tuple[str, ...]) -> re.Pattern[str]:
    """Finds one of them where a command begins. A courtesy to the policy, who learns at once what
    would fail; no wall, which the box is. Nothing of it reaches beyond the next beginning of a
    command, so that a command of nothing but beginnings takes no longer than any other."""
    names = "|".join(map(re.escape, programs)) or "(?!)"
    return re.compile(rf"(?:^|[;&|(\n])[ \t]*(?:[^\s;&|(]*/)?({names})(?![\w.-])")


def _failed(why: str, *, lost: bool) -> Result:
    why = f"{why}; {_LOST}" if lost else why
    kind = ToolErrorKind.CRASHED if lost else ToolErrorKind.EXCEPTION
    error = ToolError(kind=kind, message=why, session_lost=lost)
    return Result(observation=(Text(text=why),), error=error)


def as_result(ran: CommandRun, run_limit: float) -> Result:
    """The output, and a line in brackets for each thing that it cannot tell."""
    notes = []
    if ran.dropped:
        notes.append(f"the output was longer: {ran.dropped} bytes are not shown")
    if ran.kind is ToolErrorKind.TIMEOUT:
        notes.append(f"stopped after {run_limit:g} s")
    elif ran.kind is ToolErrorKind.CANCELLED:
        notes.append("cancelled")
    elif ran.code and not ran.lost:
        notes.append(f"exit code {ran.code}")
    if ran.lost:
        notes.append(f"{ran.lost}; {_LOST}")
    output = as_shown(ran.output.decode("utf-8", "replace")).rstrip()
    if ran.dropped:
        output = output.rstrip("\ufffd")
    text = "\n".join([*([output] if output else []), *(f"[{note}]" for note in notes)])
    error = None
    if ran.kind is not ToolErrorKind.NONE:
        message = notes[-1] if notes else text
        error = ToolError(kind=ran.kind, message=message, session_lost=bool(ran.lost))
    return Result(
        observation=(Text(text=text),),
        error=error,
        truncated=bool(ran.dropped),
        metrics={} if ran.code is None else {"exit_code": float(ran.code)},
    )
