"""Lines of `engine check` on limits of a trajectory that do not fit together. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from engine.offline.check.remarks import WARNING
from toolwright.recipe import Limits


def budget_lines(limits: Limits, prompt: int, key: str) -> Iterator[str]:
    """Lines about budgets that whole observations, or whole turns, use up before the answer.

    A budget that the observations of half of the turns use up is a warning, and so is a limit
    without effect. Actions seldom reach their limit, so a line about whole turns is no warning.
    prompt: tokens of the first prompt, 0 if unknown. key: the limits' key, such as "task.limits".
    """
    if limits.policy and "response" in limits.model_fields_set:
        yield (
            f"{WARNING}{key}.response = {limits.response} has no effect: {key}.policy = "
            f"{limits.policy} replaces it"
        )
    context = limits.model - prompt - limits.policy
    bounds = [("model", context)] if limits.policy else [("response", limits.response)]
    if not limits.policy and context < limits.response:
        bounds.append(("model", context))
    name, room = min(bounds, key=lambda one: one[1])
    whole = max(0, room - (not limits.policy)) // limits.observation
    beside = f" beside a prompt of {prompt} tokens" if name == "model" and prompt else ""
    beside += f" and {key}.policy = {limits.policy}" if name == "model" and limits.policy else ""
    budget = f"{key}.{name} = {getattr(limits, name)}{beside}"
    if whole >= limits.turns:
        turn = limits.action + limits.observation
        if not limits.policy and limits.turns * turn > room:
            yield (
                f"{key}.turns x (action + observation) = {limits.turns} x ({limits.action} + "
                f"{limits.observation}) = {limits.turns * turn} tokens; {budget} holds "
                f"{max(0, room) // turn} such turns: longer ones end with max_{name}_length; raise "
                f"{key}.{name} or lower {key}.action"
            )
        return
    advice = f"raise {key}.{name} or lower {key}.observation"
    if name == "response":
        advice += f", or set {key}.policy, which counts actions alone"
    yield (
        f"{WARNING if 2 * whole < limits.turns else ''}{key}.turns x observation = {limits.turns} "
        f"x {limits.observation} = {limits.turns * limits.observation} tokens; {budget} is "
        f"full after {whole} of these observations: {advice}"
    )
