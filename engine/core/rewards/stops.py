"""The effect of a stop on loss and reward; pure.

Rules
- [task] stops keeps, masks or penalises a stop reason; the default is to keep it.
- The rules of `tool_timeout` and `tool_exception` hold for every trajectory with such a call,
  however it ended: the policy sees the tool's error and continues.
- `mask_overlong` masks trajectories that a length limit ended. `mask_void` masks those with neither
  a valid call nor an answer.
- If several rules hold, one mask is enough. The lowest reward that they set counts; penalties add
  up if no rule sets a reward.
- A trajectory that infrastructure ended is always masked. It is outside of its group's baseline
  unless `exclude_masked_from_baseline` is false.
- Other masked trajectories stay in the baseline unless it is true: running out of tokens is
  behaviour of the policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from toolwright.recipe import Overlong, TaskTable
from toolwright.recipe.models.stop_rules import StopRule, read_stop_rules
from toolwright.types import Status, StopReason, ToolErrorKind, Trajectory

OVERLONG = frozenset(
    (
        StopReason.MAX_RESPONSE_LENGTH,
        StopReason.MAX_MODEL_LENGTH,
        StopReason.MAX_ACTION_LENGTH,
        StopReason.MAX_IMAGE_BYTES,
    )
)
"""Stops at a limit of tokens or images."""
_ANSWERED = frozenset((StopReason.ANSWERED, StopReason.TOOL_SIGNALED_DONE))
_CALL_ERRORS = {
    ToolErrorKind.TIMEOUT: StopReason.TOOL_TIMEOUT,
    ToolErrorKind.EXCEPTION: StopReason.TOOL_EXCEPTION,
    ToolErrorKind.OUT_OF_MEMORY: StopReason.TOOL_EXCEPTION,
    ToolErrorKind.CRASHED: StopReason.TOOL_EXCEPTION,
    ToolErrorKind.LIMIT: StopReason.TOOL_EXCEPTION,
}
"""Stop reason of a failed call. An invalid action is the policy's own error and has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRules:
    """Rules of [task] for stops."""

    stops: Mapping[StopReason, StopRule] = field(default_factory=dict)
    mask_overlong: bool = False
    mask_void: bool = False
    exclude_masked: bool | None = None
    """Masked trajectories leave the baseline; None = only those that infrastructure ended."""
    overlong: Overlong | None = None
    """Penalty for length, whatever the stop."""
    tool_rewards: bool = False
    """Rewards of tools' results become parts of their turns, whatever the stop."""

    @classmethod
    def of(cls, table: TaskTable) -> StopRules:
        """The rules of a recipe's table, which has checked them."""
        return cls(
            stops=read_stop_rules(table.stops),
            mask_overlong=table.mask_overlong,
            mask_void=table.mask_void,
            exclude_masked=table.exclude_masked_from_baseline,
            overlong=table.overlong,
            tool_rewards=table.tool_rewards,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StopEffect:
    """The effect of the rules on a trajectory."""

    adjustment: float = 0.0
    """Added to the reward."""
    masked: bool = False
    outside_baseline: bool = False
    reasons: tuple[str, ...] = ()
    """Names of the rules that changed anything."""


def stop_effect(trajectory: Trajectory, rules: StopRules) -> StopEffect:
    """The effect of the rules on a trajectory with its reward."""
    if trajectory.status is Status.ERRORED:
        return StopEffect(
            masked=True,
            outside_baseline=rules.exclude_masked is not False,
            reasons=("infrastructure",),
        )
    holding = dict(_holding(trajectory, rules))
    masked = any(rule.masked for rule in holding.values())
    rewards = [rule.reward for rule in holding.values() if rule.reward is not None]
    adjustment = sum(rule.penalty for rule in holding.values())
    return StopEffect(
        adjustment=min(rewards) - trajectory.reward if rewards else adjustment,
        masked=masked,
        outside_baseline=masked and rules.exclude_masked is True,
        reasons=tuple(holding),
    )


def _holding(trajectory: Trajectory, rules: StopRules) -> Iterator[tuple[str, StopRule]]:
    """The rules that apply to the trajectory and change anything, by name."""
    reason = trajectory.stop_reason
    reasons = {
        reason,
        *(
            _CALL_ERRORS[c.outcome.error]
            for c in trajectory.calls
            if c.outcome.error in _CALL_ERRORS
        ),
    }
    for one in sorted(reasons):
        rule = rules.stops.get(one, StopRule())
        if rule != StopRule():
            yield one.name.lower(), rule
    if rules.mask_overlong and reason in OVERLONG:
        yield "overlong", StopRule(masked=True)
    understood = any(call.outcome.valid for call in trajectory.calls)
    if rules.mask_void and reason not in _ANSWERED and not understood:
        yield "void", StopRule(masked=True)
