"""The reward: state of the database and required outputs, as the tau benchmark defines them.

The state is right if the replay of the trajectory's calls changes the same rows to the same values
as the replay of the task's expected actions. An output was said if it occurs in a message to the
customer, in any case and without the commas of numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import PrivateAttr

from engine.api import Options, Score, read_json_call
from toolwright.reading.thoughts import after_thoughts
from toolwright.types import CallRecord, StopReason, ToolErrorKind, Trajectory

from .package import AirlinePackage
from .replay import AirlineReplay

HERE = Path(__file__).parent
CALL = ("<tool_call>", "</tool_call>")
ANSWERED_BY_SERVER = (ToolErrorKind.NONE, ToolErrorKind.EXCEPTION)
"""Outcomes of calls that ran to their end on the server."""


class AirlineReward(Options):
    """1 for the right state and all required outputs in a conversation that the agent ended."""

    package: str
    """Folder of the environment of server.txt, relative to this file."""
    _replay: AirlineReplay = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        self._replay = AirlineReplay(AirlinePackage(HERE / self.package))

    def __call__(self, trajectory: Trajectory) -> Score:
        """Parts: `solved`. Figures: `state_right`, `outputs_said`, `rows_missing`, `rows_damaged`.

        A trajectory with a call of unknown effect, such as one that timed out, leaves the loss.
        """
        wanted = json.loads(trajectory.task.answers[0])
        calls = [call for call in trajectory.calls if _may_have_run(call)]
        if any(call.outcome.error not in ANSWERED_BY_SERVER for call in calls):
            return Score(reward=0.0, keep=False)
        expected = self._replay.changes(
            (one["name"], one["arguments"]) for one in wanted["actions"]
        )
        found = self._replay.changes(map(_named, calls))
        missing = sum(found.get(row) != values for row, values in expected.items())
        damaged = sum(row not in expected for row in found)
        said = _said(trajectory)
        outputs = all(one.lower().replace(",", "") in said for one in wanted["outputs"])
        ended = trajectory.stop_reason is StopReason.ANSWERED
        right = not missing and not damaged
        figures: Mapping[str, float] = {
            "state_right": float(right),
            "outputs_said": float(outputs),
            "rows_missing": float(missing),
            "rows_damaged": float(damaged),
        }
        return Score.of({"solved": float(right and outputs and ended)}, measured=figures)


def _may_have_run(call: CallRecord) -> bool:
    """Whether the call may have reached the server."""
    return not call.outcome.malformed


def _named(call: CallRecord) -> tuple[str, Mapping[str, Any]]:
    if call.action.startswith("{"):  # of an agent with a loop of its own
        return call.tool, json.loads(json.loads(call.action)["arguments"])
    read = read_json_call(call.action, *CALL)
    return read.tool, read.arguments or {}


def _said(trajectory: Trajectory) -> str:
    """All messages to the customer: the actions without a call."""
    calling = {call.turn for call in trajectory.calls}
    texts = enumerate(trajectory.metadata["texts"])
    spoken = [after_thoughts(text) for turn, text in texts if turn not in calling]
    return "\n".join(spoken).lower().replace(",", "")
