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
from urllib.parse import urlsplit

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
    """Budgets of one trajectory, in tokens unless the key says otherwise. `engine check` warns if
    not all turns fit at their longest."""

    turns: int = Field(default=4, ge=0)
    """Number of turns with tool calls. One more turn may answer."""
    calls: int = Field(default=8, ge=1)
    """Number of tool calls in one action. The policy gets an error for each later one."""
    action: int = Field(default=1024, ge=1)
    """Length of one action."""
    observation: int = Field(default=1024, ge=1)
    """Length of one observation. A longer one is cut, as `engine.observation_keep` says."""
    response: int = Field(default=4096, ge=1)
    """Length of all actions and observations together."""
    policy: int = Field(default=0, ge=0)
    """Length of all actions together. Above 0 it replaces `response`, and only the context bounds
    observations."""
    model: int = Field(default=32768, ge=2)
    """Length of prompt and response: the context that the samplers were started with. Nothing
    compares it with theirs."""
    seconds: float = Field(default=600.0, gt=0)
    """Duration of the turn loop, in seconds, without outages."""
    image_tokens: int = Field(default=1280, ge=1)
    """Reserve for an image until the sampler reports its tokens."""
    image_bytes: int = Field(default=16 << 20, ge=0)
    """Size of all images that the policy is shown, as files, in bytes."""

    synonyms: ClassVar = "limits"

    @property
    def longest(self) -> tuple[str, int]:
        """The key that bounds a response, `policy` or `response`, and its tokens."""
        return ("policy", self.policy) if self.policy else ("response", self.response)


class DynamicSampling(Table):
    """The engine discards groups whose rollouts all earned the same, and samples others in their
    place (DAPO, arXiv:2503.14476, section 3.2). An empty table turns it on."""

    metric: str = ""
    """Name of the part of the reward that is compared. Empty: the final reward."""
    max_gen_batches: int = 0
    """Most batches sampled to fill one; 1 discards nothing. 0: the run ends after 20 batches
    without a group that varies."""


class Branching(Table):
    """Trajectories branch where the policy grows uncertain after an observation (ARPO,
    arXiv:2507.19849, sections 3.1 and 3.2, with the constants of its code). An empty table turns it
    on. Evaluations do not branch."""

    init: int | None = Field(default=None, ge=1)
    """Members of a group that begin at the prompt. None: half of the group, rounded up."""
    beam: int = Field(default=2, ge=2, le=64)
    """Most continuations of one observation, with the trajectory's own."""
    weight: float = Field(default=0.2, ge=0, allow_inf_nan=False)
    """Factor on a rise in entropy, which is added to `threshold`."""
    threshold: float = Field(default=0.5, ge=0, lt=1)
    """Chance of a branch if the entropy is the same as at the prompt."""
    tokens: int = Field(default=20, ge=1)
    """Tokens after the prompt, and after each observation, that the entropy is measured over."""
    top_k: int = Field(default=10, ge=1, le=100)
    """Log-probs of the likeliest tokens that each of them asks for."""
    agg: Literal["sum", "mean"] = "sum"
    """Combination of the tokens' entropies. With `"sum"`, as in ARPO's code, a short continuation
    looks certain."""

    def starters(self, group_size: int) -> int:
        """Members of a group that begin at the prompt."""
        return self.init or (group_size + 1) // 2


class Overlong(Table):
    """A penalty that grows linearly over the last tokens before a length (DAPO, section 3.4). It is
    the part `overlong` of training rewards."""

    max: int = Field(ge=1)
    """Length at which the penalty is whole, in tokens."""
    buffer: int = Field(ge=0)
    """Tokens before `max` over which it grows; 0 is a step."""
    factor: float = Field(default=1.0, gt=0)
    """Size of the whole penalty."""
    count: Literal["policy", "all"] = "policy"
    """Tokens that count: those of the policy, or observations too. The prompt never counts."""

    @model_validator(mode="after")
    def _begins_above_zero(self) -> Overlong:
        if self.buffer > self.max:
            raise ValueError(
                f"buffer = {self.buffer} begins below the first token: it is at most max = "
                f"{self.max}"
            )
        return self


_KEY_OF = {"command": "command", "function": "function", "http": "url", "container": "image"}
"""The key that a kind has to have, by kind."""
_ALL_BUT_OTHERS = ("external", "command", "function")
_KINDS_OF = {
    "token_env": ("http",),
    "memory_mib": ("container",),
    "processes": ("container",),
    "sandbox": _ALL_BUT_OTHERS,
    "folders": _ALL_BUT_OTHERS,
}
"""The kinds that may have a key, by key."""


class Agent(Table):
    """An agent program of its own writes the trajectories, with the policy as its model server. An
    empty table turns it on. Then `limits.model` is the context, `limits.action` the default length
    of a completion, and `limits.seconds` counts from the hand-out. A trajectory has at most 1,024
    completions, 16 calls in flight, and a record of 56 MiB."""

    kind: Literal["external", "command", "function", "http", "container"] = "external"
    """Who starts the agents: another program (`"external"`), or `agents serve`."""
    command: tuple[str, ...] = ()
    """Program and words of an agent. `python` is Toolwright's own, and words may name files of the
    recipe's folder. For a container they replace the image's own command."""
    function: str = ""
    """Async function `"module:function"` or `"./file.py:function"` of the task and the client's
    settings."""
    url: str = ""
    """URL of the service that runs agents, for kind `"http"`."""
    token_env: str = ""
    """Environment variable with the service's bearer token."""
    image: str = ""
    """Podman's name of an image, for kind `"container"`."""
    memory_mib: int = Field(default=4096, ge=16)
    """Memory limit of a container, in MiB."""
    processes: int = Field(default=512, ge=1)
    """Largest number of processes of a container."""
    at_once: int = Field(default=16, ge=1, le=1024)
    """Agents of one `agents serve` that run at the same time."""
    sandbox: Literal["firejail", "bwrap", "none"] = "firejail"
    """Jail of an agent that is a process; `"none"` warns at the start."""
    folders: tuple[str, ...] = ()
    """Folders that a jailed agent may read, in addition to the system's."""
    retry_exits: tuple[int, ...] = ()
    """Exit codes, or statuses of a service, after which another attempt is made."""
    environment: dict[str, str] = Field(default_factory=dict)
    """Variables of the agent, in addition to its usual ones."""
    reward_from: Literal["recipe", "agent", "callback"] = "recipe"
    """Source of the reward: `task.reward`, the agent's report, or a later report (`"callback"`).
    Without a report the trajectory is masked."""
    superseded: Literal["mask", "train"] = "mask"
    """Completions that a later sample of the same request replaced: out of the loss, or in it."""
    constrained: Literal["mask", "train"] = "mask"
    """Completions that a grammar limited: out of the loss, or in it."""
    sampling: Literal["recipe", "request"] = "recipe"
    """Source of the sampling parameters: the recipe, or each request. Seed and token limit are
    always the request's."""

    @property
    def started_here(self) -> bool:
        """Whether `agents serve` starts the agents."""
        return self.kind != "external"

    @property
    def in_process(self) -> bool:
        """Whether an agent is a process of the host's machine, which `sandbox` locks in."""
        return self.kind in ("command", "function")

    @model_validator(mode="after")
    def _kind_has_its_keys(self) -> Agent:
        for kind, key in _KEY_OF.items():
            if bool(getattr(self, key)) != (self.kind == kind) and not (
                key == "command" and self.kind == "container"
            ):
                raise ValueError(
                    f'kind = "{self.kind}" and {key} = {getattr(self, key)!r}: {key} belongs to '
                    f'kind = "{kind}"'
                )
        for key, kinds in _KINDS_OF.items():
            if key in self.model_fields_set and self.kind not in kinds:
                raise ValueError(f"{key} belongs to kind = {' or '.join(map(repr, kinds))}")
        if self.url:
            parts = urlsplit(self.url)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.fragment:
                raise ValueError(f'{self.url!r} is not a URL: write "http://HOST:PORT/PATH"')
            if "@" in parts.netloc:
                raise ValueError("url has a password, which logs would show: use token_env")
        if self.started_here and self.reward_from == "callback":
            raise ValueError(
                f'kind = "{self.kind}" and reward_from = "callback": nothing reports later than an '
                'agent that the host starts; set reward_from to "recipe" or "agent"'
            )
        return self


class TaskTable(Table):
    """The questions, how the agent speaks, and what is rewarded. "Import path" means
    `package.module:name` or `./file.py:name`."""

    source: str
    """Rows (`data.jsonl`, `data.parquet`), the import path of a function of the seed that yields
    tasks without end, or `"submitted"`."""
    protocol: str = "engine.api:Tagged"
    """Import path of the protocol; `"engine.api:Chat"` is the other one that ships."""
    protocol_options: dict[str, Any] = Field(default_factory=dict)
    """Keywords of the protocol."""
    reward: str = ""
    """Import path of the reward function. Needed unless an agent reports the reward."""
    reward_options: dict[str, Any] = Field(default_factory=dict)
    """Keywords of `reward`, which is then called once and returns the function."""
    reward_per_group: bool = False
    """The function gets the list of a group's trajectories and returns a list."""
    reward_seconds: float = Field(default=60.0, gt=0)
    """Longest time of one call of the reward function or the group hook, in seconds."""
    reward_threads: int = Field(default=8, ge=1)
    """Threads of a reward function that is not `async`. Make a function `async` if it waits for a
    service."""
    group_hook: str = ""
    """Import path of an async function over each scored group. It returns a `Score` or None for
    each member. After three failures its group is masked."""
    group_hook_options: dict[str, Any] = Field(default_factory=dict)
    """Keywords of `group_hook`, as `reward_options`."""
    stops: dict[str, str] = Field(default_factory=dict)
    """Rule by stop reason, in lower case: `"keep"`, `"mask"`, `"mask:REWARD"` or
    `"penalise:VALUE"`, such as `{ tool_timeout = "mask:0" }`."""
    tool_rewards: bool = False
    """The reward in a tool's result becomes a part of the reward, for the turn of its call."""
    mask_overlong: bool = False
    """Mask trajectories that a length limit ended: `MAX_RESPONSE_LENGTH`, `MAX_MODEL_LENGTH`,
    `MAX_ACTION_LENGTH`, `MAX_IMAGE_BYTES`."""
    mask_void: bool = False
    """Mask trajectories with neither a call that a tool understood nor an answer."""
    exclude_masked_from_baseline: bool | None = None
    """Rewards of masked members stay out of their group's mean and deviation. None: only if
    infrastructure ended the member or its reward failed."""
    dynamic_sampling: DynamicSampling | None = None
    """Discard groups without a signal. None: train on all."""
    overlong: Overlong | None = None
    """Penalty of length. None: no penalty."""
    branching: Branching | None = None
    """Trajectories branch on the way. None: all begin at the prompt."""
    agent: Agent | None = None
    """An outside agent writes the trajectories. None: the engine's own turn loop."""
    shuffle: bool = True
    """Shuffle files anew in each epoch. Functions have their own order."""
    limits: Limits = Field(default_factory=Limits)
    """Budgets of one trajectory."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Values laid over the metadata of every training task. `{iteration}` becomes RUN.STEP of the
    weights that the group began with."""
    tools: tuple[str, ...] = ()
    """Names under [tools] that the task uses; empty is all."""

    synonyms: ClassVar = "task"

    @field_validator("stops")
    @classmethod
    def _rules_are_rules(cls, stops: dict[str, str]) -> dict[str, str]:
        read_stop_rules(stops)
        return stops

    @model_validator(mode="after")
    def _has_a_reward(self) -> TaskTable:
        reported = self.agent is not None and self.agent.reward_from != "recipe"
        if self.source and not self.reward and not reported:  # a mixture's base has neither
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
    """One of several tasks that are trained together. Missing keys are those of [task]. If a task
    names its own protocol, reward or hook, the options of [task] do not count for it."""

    share: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Share of a batch's groups, relative to the other tasks. `engine check` shows the numbers."""
    weight: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """Weight of the task's loss, relative to the other tasks. At 0 the task is sampled and
    measured, and trains nothing."""


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
