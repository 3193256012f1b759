"""What the way in which a trajectory ended means for the loss; pure.

Rules
- A stop reason keeps, masks or penalises, as [task] stops says; without a rule it keeps.
- The rules of `tool_timeout` and `tool_exception` hold for every trajectory in which a call ended
  so, whatever ended the trajectory: a tool's error is shown to the policy, which goes on.
- `mask_overlong` masks what a length limit ended, `mask_void` what has neither a call that a tool
  understood nor an answer.
- Where several rules hold, one that masks is enough, the lowest reward that one of them sets is
  taken, and penalties add up where none sets a reward.
- What infrastructure ended is masked, whatever the rules say, and is outside of its group's
  baseline unless `exclude_masked_from_baseline` is false. Of the rest, what is masked stays in the
  baseline unless it is true: that a policy ran out of tokens says something about the policy.
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
"""Not finished within the budget of tokens, or of images."""
_ANSWERED = frozenset((StopReason.ANSWERED, StopReason.TOOL_SIGNALED_DONE))
_CALL_ERRORS = {
    ToolErrorKind.TIMEOUT: StopReason.TOOL_TIMEOUT,
    ToolErrorKind.EXCEPTION: StopReason.TOOL_EXCEPTION,
    ToolErrorKind.OUT_OF_MEMORY: StopReason.TOOL_EXCEPTION,
    ToolErrorKind.CRASHED: StopReason.TOOL_EXCEPTION,
    ToolErrorKind.LIMIT: StopReason.TOOL_EXCEPTION,
}
"""What a failed call counts as. An action that no tool understood is the policy's own fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRules:
    """What [task] says of stops. exclude_masked: None = what infrastructure ended alone.
    overlong: what length costs, whatever ended the trajectory."""

    stops: Mapping[StopReason, StopRule] = field(default_factory=dict)
    mask_overlong: bool = False
    mask_void: bool = False
    exclude_masked: bool | None = None
    overlong: Overlong | None = None

    @classmethod
    def of(cls, table: TaskTable) -> StopRules:
        """The rules of a recipe's table, which has checked their words."""
        return cls(
            stops=read_stop_rules(table.stops),
            mask_overlong=table.mask_overlong,
            mask_void=table.mask_void,
            exclude_masked=table.exclude_masked_from_baseline,
            overlong=table.overlong,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the rules make of a trajectory.

    adjustment: is added to its reward. reasons: the rules that changed anything, by name.
    """

    adjustment: float = 0.0
    masked: bool = False
    outside_baseline: bool = False
    reasons: tuple[str, ...] = ()


def verdict(trajectory: Trajectory, rules: StopRules) -> Verdict:
    """The rules' verdict on a trajectory that has its reward."""
    if trajectory.status is Status.ERRORED:
        return Verdict(
            masked=True,
            outside_baseline=rules.exclude_masked is not False,
            reasons=("infrastructure",),
        )
    holding = dict(_holding(trajectory, rules))
    masked = any(rule.masked for rule in holding.values())
    rewards = [rule.reward for rule in holding.values() if rule.reward is not None]
    adjustment = sum(rule.penalty for rule in holding.values())
    return Verdict(
        adjustment=min(rewards) - trajectory.reward if rewards else adjustment,
        masked=masked,
        outside_baseline=masked and rules.exclude_masked is True,
        reasons=tuple(holding),
    )


def _holding(trajectory: Trajectory, rules: StopRules) -> Iterator[tuple[str, StopRule]]:
    """The rules that change something about the trajectory, each under its name."""
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
