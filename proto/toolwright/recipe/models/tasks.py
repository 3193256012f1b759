"""The recipe's tasks: [task], and [tasks.NAME] if several are trained at once.

A [tasks.NAME] is a [task] of its own. A missing key is as in [task], and its tables are merged with
those of [task] key by key. Options belong to a function: if a task names another protocol, reward
or hook, the options of [task] do not count for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from toolwright.recipe.layers import merged
from toolwright.recipe.models.stop_rules import read_stop_rules
from toolwright.recipe.models.table import Table

TASK_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
"""Form of a task's name, which is part of metric names."""
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "protocol": ("protocol_options",),
    "reward": ("reward_options", "reward_per_group"),
    "group_hook": ("group_hook_options",),
}
"""Options by the key of their function: they mean nothing without it."""
SUBMITTED = "submitted"
"""Value of `source` for tasks that clients submit."""
NAMED = ("source", "reward")
"""Keys that every task needs. [task] may leave them out if each [tasks.NAME] has them."""


class Limits(Table):
    """Budgets of one trajectory, in tokens if not described otherwise."""

    turns: int = Field(default=4, ge=0, description="tool calls; one answer turn comes on top")
    calls: int = Field(default=8, ge=1, description="tool calls in one action")
    action: int = Field(default=1024, ge=1)
    observation: int = Field(default=1024, ge=1)
    response: int = Field(default=4096, ge=1, description="actions and observations together")
    policy: int = Field(
        default=0,
        ge=0,
        description="all actions, observations not counted; above 0 it replaces `response`",
    )
    model: int = Field(default=32768, ge=2, description="the sampler's context")
    seconds: float = Field(default=600.0, gt=0, description="wall clock of one trajectory")
    image_tokens: int = Field(
        default=1280, ge=1, description="reserved for an image until the sampler reports its tokens"
    )
    image_bytes: int = Field(
        default=16 << 20, ge=0, description="of all images that the policy is shown, as files"
    )

    synonyms: ClassVar = "limits"

    @property
    def longest(self) -> tuple[str, int]:
        """The key that bounds a response, `policy` or `response`, and its tokens."""
        return ("policy", self.policy) if self.policy else ("response", self.response)


class DynamicSampling(Table):
    """Groups whose rollouts all earned the same are turned away and others sampled in their place
    (DAPO, arXiv:2503.14476, section 3.2)."""

    metric: str = Field(default="", description="a part of the reward; empty = the final reward")
    max_gen_batches: int = Field(
        default=0, description="most batches sampled to fill one; 0 or less = no such bound"
    )


class Branching(Table):
    """Trajectories part where the policy grows uncertain after an observation (ARPO,
    arXiv:2507.19849, sections 3.1 and 3.2, with the constants of its code)."""

    init: int | None = Field(
        default=None, ge=1, description="members that begin at the prompt; none = half of the group"
    )
    beam: int = Field(default=2, ge=2, le=64, description="ways on from one observation at most")
    weight: float = Field(
        default=0.2, ge=0, allow_inf_nan=False, description="of a rise in entropy"
    )
    threshold: float = Field(
        default=0.5, ge=0, lt=1, description="chance of a branch where the entropy is as at first"
    )
    tokens: int = Field(default=20, ge=1, description="after an observation that are looked at")
    top_k: int = Field(default=10, ge=1, le=100, description="log-probs of each of them")
    agg: Literal["sum", "mean"] = Field(default="sum", description="of the tokens' entropies")

    def starters(self, group_size: int) -> int:
        """Members of a group that begin at the prompt."""
        return self.init or (group_size + 1) // 2


class Overlong(Table):
    """A penalty that grows over the last tokens before a length (DAPO, section 3.4)."""

    max: int = Field(ge=1, description="tokens from which on the penalty is whole")
    buffer: int = Field(ge=0, description="tokens before `max` over which it grows")
    factor: float = Field(default=1.0, gt=0, description="the whole penalty")
    count: Literal["policy", "all"] = Field(
        default="policy", description="tokens that the policy wrote, or observations too"
    )

    @model_validator(mode="after")
    def _begins_above_zero(self) -> Overlong:
        if self.buffer > self.max:
            raise ValueError(
                f"buffer = {self.buffer} begins below the first token: it is at most max = "
                f"{self.max}"
            )
        return self


class Agent(Table):
    """Trajectories are written by an agent of its own, which calls the policy as a model server."""

    kind: Literal["external", "command", "function"] = Field(
        default="external",
        description="external: agents are started elsewhere; command and function: `agents serve` "
        "starts them",
    )
    command: tuple[str, ...] = Field(
        default=(),
        description="an agent's program and its words; files of the recipe's folder may be named "
        "relative to it",
    )
    function: str = Field(
        default="", description="module:function or ./file.py:function, async: (task, client)"
    )
    at_once: int = Field(
        default=16, ge=1, le=1024, description="agents of one `agents serve` that live at a time"
    )
    sandbox: Literal["firejail", "bwrap", "none"] = Field(
        default="firejail",
        description="jail of an agent, its network the ingress; none = no jail, with a warning",
    )
    folders: tuple[str, ...] = Field(
        default=(), description="that a jailed agent may read, beside the system's"
    )
    retry_exits: tuple[int, ...] = Field(
        default=(), description="exit codes after which another attempt is made"
    )
    environment: dict[str, str] = Field(
        default_factory=dict, description="of the agent, beside what it always has"
    )
    reward_from: Literal["recipe", "agent", "callback"] = Field(
        default="recipe",
        description="whose reward counts: task.reward's, the agent's report, or a later report of "
        "its environment",
    )
    superseded: Literal["mask", "train"] = Field(
        default="mask", description="completions whose place a later sample of the request took"
    )
    constrained: Literal["mask", "train"] = Field(
        default="mask", description="completions that a grammar limited"
    )
    sampling: Literal["recipe", "request"] = Field(
        default="recipe", description="whose temperature, top_p, top_k, min_p and penalty count"
    )

    @property
    def started_here(self) -> bool:
        """Whether `agents serve` starts the agents."""
        return self.kind != "external"

    @model_validator(mode="after")
    def _kind_has_its_key(self) -> Agent:
        for key in ("command", "function"):
            if bool(getattr(self, key)) != (self.kind == key):
                raise ValueError(
                    f'kind = "{self.kind}" and {key} = {getattr(self, key)!r}: {key} belongs to '
                    f'kind = "{key}"'
                )
        if self.started_here and self.reward_from == "callback":
            raise ValueError(
                f'kind = "{self.kind}" and reward_from = "callback": nothing reports later than an '
                'agent that the host starts; set reward_from to "recipe" or "agent"'
            )
        return self


class TaskTable(Table):
    """Source of the questions, protocol and reward."""

    source: str = Field(
        description="data.jsonl, data.parquet, path.py:function / module:function, or submitted"
    )
    protocol: str = "engine.api:Tagged"
    protocol_options: dict[str, Any] = Field(default_factory=dict)
    reward: str = Field(
        default="",
        description="module:function or ./file.py:function; needed unless an agent reports",
    )
    reward_options: dict[str, Any] = Field(
        default_factory=dict,
        description="keywords of the reward, which is then what makes the function: a class, say",
    )
    reward_per_group: bool = False
    reward_seconds: float = Field(default=60.0, gt=0)
    reward_threads: int = Field(
        default=8, ge=1, description="calls at a time of a reward function that is not async"
    )
    group_hook: str = Field(
        default="", description="module:function or ./file.py:function, async, over scored groups"
    )
    group_hook_options: dict[str, Any] = Field(
        default_factory=dict, description="as reward_options, of the group hook"
    )
    stops: dict[str, str] = Field(
        default_factory=dict, description='stop reason = "keep", "mask", "mask:0", "penalise:-0.5"'
    )
    tool_rewards: bool = Field(
        default=False, description="the reward of a tool's result counts for the call's turn"
    )
    mask_overlong: bool = Field(default=False, description="what a length limit ended")
    mask_void: bool = Field(default=False, description="no call understood and no answer")
    exclude_masked_from_baseline: bool | None = Field(
        default=None, description="none = only trajectories that infrastructure ended"
    )
    dynamic_sampling: DynamicSampling | None = Field(
        default=None, description="turn groups without a signal away; none = train on all"
    )
    overlong: Overlong | None = Field(default=None, description="penalty of length; none = none")
    branching: Branching | None = Field(
        default=None, description="trajectories part in two on the way; none = all from the prompt"
    )
    agent: Agent | None = Field(
        default=None, description="an outside agent writes; none = our own turn loop"
    )
    shuffle: bool = True
    limits: Limits = Field(default_factory=Limits)
    metadata: dict[str, Any] = Field(
        default_factory=dict,
        description="laid over the metadata of every training task, for its tools; in texts "
        "{iteration} names the weights that the group began with",
    )
    tools: tuple[str, ...] = Field(default=(), description="names under [tools]; empty = all")

    synonyms: ClassVar = "task"

    @field_validator("stops")
    @classmethod
    def _rules_are_rules(cls, stops: dict[str, str]) -> dict[str, str]:
        read_stop_rules(stops)
        return stops

    @model_validator(mode="after")
    def _has_a_reward(self) -> TaskTable:
        if not self.reward and (self.agent is None or self.agent.reward_from == "recipe"):
            raise ValueError(
                "reward is missing: name the function that scores, as ./my_reward.py:score. Only "
                'a task with agent.reward_from = "agent" or "callback" may leave it out'
            )
        return self

    @model_validator(mode="after")
    def _agents_do_not_branch(self) -> TaskTable:
        if self.agent is not None and self.branching is not None:
            raise ValueError(
                "[task.agent] and [task.branching] exclude each other: an agent of its own cannot "
                "be copied in the middle; leave one of them out"
            )
        return self

    @model_validator(mode="after")
    def _one_answer_to_length(self) -> TaskTable:
        if self.overlong is None:
            return self
        if self.mask_overlong:
            raise ValueError(
                "mask_overlong takes out of the loss what [task.overlong] would penalise: set "
                "mask_overlong = false or leave [task.overlong] out"
            )
        begins = self.overlong.max - self.overlong.buffer
        key, longest = self.limits.longest
        if self.limits.policy and self.overlong.count == "all":
            key, longest = "model", self.limits.model
        if begins >= longest:
            raise ValueError(
                f"overlong.max - overlong.buffer = {begins} is never passed: no response is longer "
                f"than limits.{key} = {longest}; lower overlong.max"
            )
        return self


class MixedTask(TaskTable):
    """One of several tasks that are trained together."""

    share: float = Field(
        default=1.0,
        gt=0,
        allow_inf_nan=False,
        description="of a batch's groups, relative to the other tasks' shares",
    )
    weight: float = Field(
        default=1.0,
        ge=0,
        allow_inf_nan=False,
        description="of its loss, relative to the other tasks' weights",
    )


def laid_out(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The shared tables with every [tasks.NAME] complete. Values that are not tables
    stay: their models refuse them."""
    own, common = tables.get("tasks"), tables.get("task", {})
    if not isinstance(own, Mapping) or not own or not isinstance(common, Mapping):
        return dict(tables)
    return {
        **tables,
        "task": {**dict.fromkeys(NAMED, ""), **common},
        "tasks": {
            name: _laid_over(common, task) if isinstance(task, Mapping) else task
            for name, task in own.items()
        },
    }


def _laid_over(common: Mapping[str, Any], task: Mapping[str, Any]) -> dict[str, Any]:
    foreign = {option for key, own in OPTIONS.items() if key in task for option in own}
    return merged({key: value for key, value in common.items() if key not in foreign}, task)


def allotment(groups: int, shares: Sequence[float]) -> list[int]:
    """How many of `groups` each share gets, by largest remainders: they add up to `groups`, and of
    equal remainders the earlier one counts more. Shares are relative to their sum."""
    exact = [Fraction(str(share)) for share in shares]
    quotas = [groups * share / sum(exact) for share in exact]
    given = [int(quota) for quota in quotas]
    order = sorted(range(len(shares)), key=lambda place: given[place] - quotas[place])
    for place in order[: groups - sum(given)]:
        given[place] += 1
    return given


def task_key(name: str) -> str:
    """The table of a task as a recipe writes it; "" = of the only one."""
    return f"tasks.{name}" if name else "task"
