"""What should make a person look closer, in a sentence each. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from console.record.types import Step
from console.verdict import UNTAUGHT, untaught
from toolwright.credit.collapse import collapse_of

MASKED = 0.2
"""Share of a batch: more is no accident of a tool or sampler."""
FAILED = 0.5
"""Share of a tool's calls that failed: more is no accident, and no doing of the policy."""
PER_TOOL = "call_failed_fraction/"
MOST_TOOLS = 4
AT_LIMIT = 0.5
"""Share of a batch that limits ended."""
CUT = 0.3
"""Share of a batch that read less than a tool said."""
SLOW_S = 2.0
"""Seconds of a trajectory's reward."""
LIMITS = {
    "max_turns": "task.limits.turns",
    "max_response_length": "task.limits.response",
    "max_model_length": "task.limits.model",
    "max_action_length": "task.limits.action",
    "max_image_bytes": "task.limits.image_bytes",
    "trajectory_timeout": "task.limits.seconds",
}
"""Keys of the recipe by the stop reason."""
GAP = 0.05
"""Mean difference of the log-probs of sampler and learner, under the same weights: bfloat16 alone
makes some 0.01."""


def of_steps(steps: Sequence[Step], reward: str = "") -> list[str]:
    """Doubts about the newest steps, in order. reward: the recipe's name of the reward function."""
    if not steps:
        return []
    last = steps[-1]
    found = []
    if (count := untaught(steps)) >= UNTAUGHT:
        found.append(f"no signal since step {steps[-count].step}: {_why(last)}")
    if collapsed := collapse_of((step.step, step.values) for step in steps):
        found.append(collapsed.sentence)
    found += of_calls(steps)
    found += of_rollouts(last, reward)
    if (share := last.masked_share) is not None and share > MASKED:
        found.append(f"{share:.0%} of step {last.step} is masked{_stops(last.values)}")
    if (gap := last.values.get("gap_mean", 0.0)) > GAP:
        found.append(
            f"sampler and learner differ: mean |log-prob difference| {gap:.2g} at step {last.step}"
        )
    if broken := last.values.get("nonfinite_updates"):
        found.append(f"{broken:g} updates of step {last.step} had no finite gradient")
    return found


def of_rollouts(last: Step, reward: str = "") -> list[str]:
    """Doubts about one step's trajectories: limits, cut observations, failed or slow rewards."""
    found = []
    values = last.values
    named = f"the reward {reward}" if reward else "the reward function"
    whole = values.get("trajectories", 0.0)
    stops = {name: values.get(f"stop/{name}", 0.0) for name in LIMITS}
    if whole and (ended := sum(stops.values())) / whole > AT_LIMIT:
        most = max(stops, key=lambda name: stops[name])
        found.append(
            f"{ended / whole:.0%} of step {last.step} ended at a limit, most at {most}: look at "
            f"{LIMITS[most]}"
        )
    if (cut := values.get("observation_cut_fraction", 0.0)) > CUT:
        found.append(
            f"{cut:.0%} of the trajectories of step {last.step} read an observation that was cut: "
            "look at task.limits.observation"
        )
    if failed := values.get("rewards_failed", 0.0):
        said = f": {last.reward_error}" if last.reward_error else ""
        found.append(
            f"{named} failed for {failed:g} of {whole:g} trajectories of step {last.step}, which "
            f"are in no mean{said}"
        )
    if beyond := values.get("nonfinite_rewards"):
        found.append(f"{beyond:g} rewards of step {last.step} are no finite number, in no mean")
    seconds = values.get("reward_s", 0.0)
    rolled = values.get("generate_s", 0.0) + values.get("tool_s", 0.0)
    if seconds > SLOW_S and seconds > rolled:
        found.append(
            f"{named} takes {seconds:.1f} s a trajectory, the rollout {rolled:.1f} s: make it "
            "faster, or raise task.reward_threads"
        )
    return found


def of_calls(steps: Sequence[Step]) -> list[str]:
    """Doubts about each tool's newest calls: a policy learns to avoid a tool that always fails."""
    called: dict[str, list[Step]] = {}
    for step in steps:
        for name in step.values:
            if name.startswith(PER_TOOL):
                called.setdefault(name, []).append(step)
    found = []
    for name, those in called.items():
        tool, last = name.removeprefix(PER_TOOL), those[-1]
        share = last.values[name]
        if share <= FAILED:
            continue
        many = f"{share:.0%} of the calls of `{tool}` failed at step {last.step}"
        if share == 1:
            since = last.step
            for step in reversed(those):
                if step.values[name] < 1:
                    break
                since = step.step
            steps_ = f"at step {since}" if since == last.step else f"since step {since}"
            many = f"every call of `{tool}` failed {steps_}"
        said = last.call_error.removeprefix(f"{tool}: ")
        found.append(f"{many}: {said}" if said != last.call_error else many)
    return found[:MOST_TOOLS]


def of_engine(state: str, detail: Mapping[str, str]) -> list[str]:
    """What the engine says of itself. detail: its texts."""
    found = []
    if state == "full":
        found.append("the disk is full, the engine waits for room")
    if detail.get("fruitless"):
        found.append(detail["fruitless"])
    if detail.get("tool_restarted"):
        found.append(detail["tool_restarted"])
    if detail.get("sampler_away"):
        found.append(f"a sampler is away: {detail['sampler_away']}")
    return found


def _why(step: Step) -> str:
    if step.worthless:
        return step.worthless
    return (
        "every trajectory is masked" if step.masked_share == 1 else "rewards of a group are equal"
    )


def _stops(values: Mapping[str, float]) -> str:
    stops = {k.removeprefix("stop/"): v for k, v in values.items() if k.startswith("stop/")}
    common = sorted(stops, key=lambda name: -stops[name])[:3]
    return f" (stops: {', '.join(f'{name} {stops[name]:g}' for name in common)})" if common else ""
