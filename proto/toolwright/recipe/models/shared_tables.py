"""The recipe's shared tables: [run], [policy], [task], [tasks.*], [sampler], [tools.*].

Each model checks its own values and refuses unknown keys; `toolwright.recipe` reads the file. [run]
has the settings that two processes share: group size, batch, staleness and its correction. So each
process checks them.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, JsonValue, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticKnownError

from toolwright.credit.corrections import CORRECTIONS, CorrectionMode
from toolwright.recipe.assignments import assignments
from toolwright.recipe.models.spelling import grpc_fault, url_fault
from toolwright.recipe.models.table import Either, Table
from toolwright.recipe.models.tasks import (
    TASK_NAME,
    MixedTask,
    TaskTable,
    allotment,
    laid_out,
    task_key,
)
from toolwright.text.truncation import Keep
from toolwright.tracing.settings import endpoint_fault

ARCHITECTURES = ("qwen2", "qwen3", "llama", "qwen3_moe")
"""`model_type` of the policies of text alone; they can be sampled and trained."""
VISION_ARCHITECTURES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe")
"""`model_type` of the policies that read images; they can be sampled and evaluated."""
TRAINED_VISION_ARCHITECTURES = ("qwen2_5_vl",)
"""Those of them that the learner trains too."""


MEMORY_ADDRESS = "127.0.0.1:50071"
"""Address of `memory serve` if the recipe's [memory] table has no other."""
INGRESS_ADDRESS = "127.0.0.1:50081"
"""Address of `ingress serve` if the recipe's [ingress] table has no other."""
AGENTS_ADDRESS = "127.0.0.1:0"
"""Address of `agents serve` if the recipe's [agents] table has no other: any free port."""

API_KEYS = ("model", "key_env", "tokenizer", "observations", "send_stops")
"""Keys of [sampler] that SGLang does not use."""

TEMPLATE_NAMES = ("messages", "tools", "documents", "add_generation_prompt")
"""Names of a chat template's variables that the renderer sets."""

ForeignText = Literal["plain", "as_is"]


class Run(Table):
    """What engine and learner must agree on."""

    name: str
    """Name of the run in progress lines and reports."""
    folder: Path
    """Folder of everything that the run leaves. A second start resumes what is there."""
    seed: int = 0
    """Seed of the order of tasks and of the learner's random generators."""
    epochs: int | None = Field(default=None, ge=1)
    """Passes over the rows of the tasks' files (.jsonl or .parquet), in place of `steps`. With
    several tasks the slowest one decides. Groups that `[task.dynamic_sampling]` discards are read
    in addition."""
    steps: int | None = Field(default=None, ge=0, validate_default=True)
    """Weight versions to train; 0 only evaluates. Required without `epochs`."""
    groups_per_step: int = Field(ge=1)
    """Groups (questions) in one training batch."""
    group_size: int = Field(ge=1)
    """Rollouts of one question, which are compared with each other."""
    max_staleness: int = Field(default=0, ge=0)
    """Largest age of the weights that sampled a trained token, in weight versions. 0 is
    synchronous."""
    correction: CorrectionMode = "bypass"
    """Weight of a token for sampler and learner that disagree. `"bypass"`: no weight, and the loss
    takes its ratio to the sampler. Staleness 0 takes any mode but `"decoupled"`; above 0 takes
    `"decoupled"` alone."""
    share_gpu: bool = False
    """Samplers release their GPU's memory while the learner trains on it. It needs staleness 0 and
    publishing by folder."""
    publish_adapters: bool = False
    """Samplers get the adapters of `[learner.lora]` alone, megabytes instead of gigabytes. It needs
    publishing by folder."""
    engine: str = "127.0.0.1:50051"
    """Address of `engine serve`. Port 0 is any free one, which `toolwright run` chooses; so for
    samplers and tool services."""
    traces: str = ""
    """OTLP/HTTP collector of traces, such as `http://127.0.0.1:4318`. Empty:
    `OTEL_EXPORTER_OTLP_ENDPOINT`, or no traces."""

    rules: ClassVar = (Either("steps", "epochs"),)
    synonyms: ClassVar = "run"

    @field_validator("steps")
    @classmethod
    def _some_length(cls, steps: int | None, info: ValidationInfo) -> int | None:
        if steps is None and info.data.get("epochs", 0) is None:
            raise PydanticKnownError("missing")
        return steps

    @field_validator("engine")
    @classmethod
    def _engine_is_an_address(cls, engine: str) -> str:
        if fault := grpc_fault(engine):
            raise ValueError(fault)
        return engine

    @field_validator("traces")
    @classmethod
    def _traces_go_to_an_address(cls, traces: str) -> str:
        if traces and (fault := endpoint_fault(traces)):
            raise ValueError(fault)
        return traces

    @property
    def batch(self) -> int:
        """Trajectories in one training batch."""
        return self.groups_per_step * self.group_size

    @model_validator(mode="after")
    def _shared_in_turns(self) -> Run:
        if self.share_gpu and self.max_staleness > 0:
            raise ValueError(
                f"share_gpu = true with max_staleness = {self.max_staleness}: samplers and learner "
                "take turns on one GPU, so nothing is sampled early; set max_staleness = 0"
            )
        return self

    @model_validator(mode="after")
    def _adapters_stay_on_the_gpu(self) -> Run:
        if self.share_gpu and self.publish_adapters:
            raise ValueError(
                "share_gpu = true with publish_adapters = true: a sampler that releases its memory "
                "loses its adapters; set publish_adapters = false"
            )
        return self

    @model_validator(mode="after")
    def _one_correction(self) -> Run:
        """All but decoupled compare with the weights that sampled, which are gone once newer ones
        train."""
        stale = self.max_staleness > 0
        if stale != CORRECTIONS[self.correction].stale:
            fresh, late = (
                ", ".join(repr(name) for name, entry in CORRECTIONS.items() if entry.stale == way)
                for way in (False, True)
            )
            raise ValueError(
                f"max_staleness = {self.max_staleness} with correction = {self.correction!r}: "
                f"staleness 0 takes {fresh}; above 0 takes {late}"
            )
        return self


class Policy(Table):
    """The policy to start from. It is also the reference of the KL term."""

    model: Path
    """Local Hugging Face folder of a Qwen2, Qwen3, Qwen3-MoE, Llama or Qwen2.5-VL model. Other
    Qwen-VL models can be sampled and not trained."""
    foreign_text: ForeignText = "plain"
    """Control tokens, such as `</think>`, in text of tools and tasks: their letters (`"plain"`), or
    the token."""
    template: dict[str, JsonValue] = Field(default_factory=dict)
    """Variables of the chat template, such as `{ enable_thinking = false }`."""

    synonyms: ClassVar = "policy"

    @field_validator("template")
    @classmethod
    def _template_variables_are_free(cls, template: dict[str, JsonValue]) -> dict[str, JsonValue]:
        for name in template:
            if not name.isidentifier() or name in TEMPLATE_NAMES:
                raise ValueError(
                    f"{name!r} is not a variable that a recipe can set: it must be a name, and "
                    f"not one of {', '.join(TEMPLATE_NAMES)}"
                )
        return template


class Sampler(Table):
    """The SGLang servers, and how the policy is sampled in training. An evaluation alone may use an
    OpenAI-compatible API instead. The learner knows the temperature only: `top_p`, `top_k`, `min_p`
    and `repetition_penalty` widen the gap between sampler and learner."""

    api: Literal["sglang", "openai-completions", "openai-chat"] = "sglang"
    """Kind of the servers. The two of OpenAI are for evaluations alone, as are the next five keys.
    """
    endpoints: tuple[str, ...] = Field(min_length=1)
    """URLs of the servers, such as `["http://127.0.0.1:30000"]`. They belong to the run: the engine
    aborts other requests when it starts."""
    model: str = ""
    """Name of the model at the API. Empty: the only one that it serves."""
    key_env: str = ""
    """Environment variable with the API's key."""
    tokenizer: Literal["policy", "bytes"] = "policy"
    """What counts an API's text: the policy's tokenizer, or its bytes, three of them a token."""
    observations: Literal["auto", "assistant", "user"] = "auto"
    """Role of a tool's answer inside a turn. `"auto"`: what the server can do."""
    send_stops: bool = False
    """Send stops also to an API that removes the stop's text without notice."""
    temperature: float = Field(default=1.0, ge=0)
    """Temperature of sampling; 0 is greedy."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Probability mass of the likeliest tokens that are sampled from."""
    top_k: int = -1
    """Number of likeliest tokens that are sampled from; -1 is all."""
    min_p: float = Field(default=0.0, ge=0, le=1)
    """Least probability of a sampled token, as a share of the largest."""
    repetition_penalty: float = Field(default=1.0, gt=0)
    """Factor against repeated tokens; 1 is off."""
    stream_interval: int = Field(default=8, ge=1)
    """Tokens in one chunk of a stream. At 1, reading costs the engine more than twice the CPU time
    of 8. While the engine reads 1,000 streams, new ones have chunks of 32."""
    pause: Literal["retract", "in_place", "abort"] = "retract"
    """Effect of a publish on requests in flight. `"retract"` computes their cache again under the
    new weights, `"in_place"` keeps the old cache, and `"abort"` ends and continues them."""
    timeout_s: float = Field(default=300.0, gt=0)
    """Longest silence of a stream, in seconds. Keep it above the longest publish."""
    patience_s: float = Field(default=300.0, gt=0)
    """Longest time without a new token while requests of an action fail, in seconds. Time without
    any sampler does not count."""

    synonyms: ClassVar = "sampler"

    @field_validator("endpoints")
    @classmethod
    def _endpoints_are_urls(
        cls, endpoints: tuple[str, ...], info: ValidationInfo
    ) -> tuple[str, ...]:
        api = info.data.get("api", "sglang") != "sglang"
        for url in endpoints:
            # An API's address ends in /v1 wherever it is written down.
            if fault := url_fault(url.rstrip("/").removesuffix("/v1") if api else url):
                raise ValueError(fault)
        return endpoints

    @model_validator(mode="after")
    def _api_keys_have_an_api(self) -> Sampler:
        given = [
            key for key in API_KEYS if getattr(self, key) != type(self).model_fields[key].default
        ]
        if self.api == "sglang" and given:
            raise ValueError(
                f'{given[0]} belongs to an API, and api = "sglang" is not one: set '
                f'api = "openai-chat" or "openai-completions" for an evaluation, or leave '
                f"{given[0]} out"
            )
        return self


class Tool(Table):
    """One tool service, with an address or started by the engine. Several tables give each
    trajectory one session on each service, and all their tools."""

    service: str = ""
    """Address of a running service: `host:port` or `unix:/path`."""
    serve: tuple[str, ...] = ()
    """Words after `toolsvc serve`, for a service that the engine starts and ends. Its output goes
    to `tools.NAME.log`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """With `serve`: options by tool or source, as `--set` of `toolsvc serve` takes them."""
    tls_ca: Path | None = None
    """PEM file of the authority that signed the service's certificate. None: no TLS."""
    tls_cert: Path | None = None
    """PEM file of the engine's own certificate, for a service with `--tls-client-ca`."""
    tls_key: Path | None = None
    """PEM file of that certificate's key."""
    names: tuple[str, ...] = ()
    """Tools of the service that a session gets; empty is all. Two services must not share a name.
    """
    queue_limit_s: float = Field(default=60.0, gt=0)
    """Longest wait before a call starts, in seconds. After it nothing ran, and the engine tries
    again."""
    run_limit_s: float | None = Field(default=None, gt=0)
    """Longest run of a call, in seconds, without what the tool waits for; after it the policy sees
    a tool error. None: each tool's own limit."""
    observation_keep: Keep | Literal[""] = ""
    """Part of a long observation of these tools that stays. Empty: `engine.observation_keep`."""
    lease_s: float = Field(default=60.0, gt=0)
    """Time without the engine after which a session ends, in seconds."""
    patience_s: float = Field(default=300.0, ge=0)
    """Longest time that the service may be unreachable before an attempt fails, in seconds."""

    synonyms: ClassVar = "tool"

    @property
    def where(self) -> str:
        """Its address, or the command that starts it."""
        return self.service or f"`{shlex.join(('toolsvc', 'serve', *self.words))}`"

    @property
    def words(self) -> tuple[str, ...]:
        """The words after `toolsvc serve`: those of `serve`, then `--set` for each option."""
        options = (("--set", f"{key}={text}") for key, text in assignments(self.options))
        return (*self.serve, *chain.from_iterable(options))

    @field_validator("service")
    @classmethod
    def _service_is_an_address(cls, service: str) -> str:
        if service and (fault := grpc_fault(service)):
            raise ValueError(fault)
        return service

    @model_validator(mode="after")
    def _one_place(self) -> Tool:
        if bool(self.service) == bool(self.serve):
            raise ValueError(
                "set either `service`, the address of a tool service, or `serve`, the words after "
                "`toolsvc serve` to start one: one of the two"
            )
        if self.options and not self.serve:
            raise ValueError("options are for the tool that `serve` starts")
        if plain := [name for name, one in self.options.items() if not isinstance(one, dict)]:
            raise ValueError(
                f"options.{plain[0]} names no tool: write options.TOOL.{plain[0]}, such as "
                "options.search.topk"
            )
        if self.serve and self.tls_ca:
            raise ValueError("tls_ca is for a `service`; what `serve` starts is a Unix socket")
        if bool(self.tls_cert) != bool(self.tls_key) or (self.tls_cert and not self.tls_ca):
            raise ValueError("tls_cert and tls_key belong together, beside tls_ca")
        if any(word.partition("=")[0] == "--listen" for word in self.serve):
            raise ValueError("leave --listen out of `serve`: the engine says where")
        return self


class Shared(Table):
    """The shared tables of one recipe."""

    run: Run
    """What engine and learner must agree on."""
    policy: Policy
    """The policy to start from."""
    task: TaskTable
    """The questions, the protocol and the reward."""
    tasks: dict[str, MixedTask] = Field(default_factory=dict)
    """Several tasks in one run, by their names. [task] says what they share."""
    sampler: Sampler
    """The servers that sample."""
    tools: dict[str, Tool] = Field(default_factory=dict)
    """Tool services by their names."""

    @property
    def each_task(self) -> Mapping[str, TaskTable]:
        """The recipe's tasks by their names; "" = the only one, which is [task] itself."""
        return self.tasks or {"": self.task}

    @property
    def allotment(self) -> dict[str, int]:
        """Groups of each task in one training batch."""
        if not self.tasks:
            return {"": self.run.groups_per_step}
        shares = [task.share for task in self.tasks.values()]
        return dict(zip(self.tasks, allotment(self.run.groups_per_step, shares), strict=True))

    @property
    def used_tools(self) -> tuple[str, ...]:
        """Names under [tools] that a task uses, in the order of the tasks."""
        names = (name for task in self.each_task.values() for name in task.tools or self.tools)
        return tuple(dict.fromkeys(names))

    def of_task(self, name: str) -> Shared:
        """The tables with this task alone; "" = the recipe has one task. Raises KeyError."""
        return self.model_copy(update={"task": self.tasks[name], "tasks": {}}) if name else self

    @model_validator(mode="before")
    @classmethod
    def _tasks_are_laid_over_task(cls, given: Any) -> Any:
        return laid_out(given) if isinstance(given, Mapping) else given

    @model_validator(mode="after")
    def _tools_exist(self) -> Shared:
        for name, task in self.each_task.items():
            unknown = [tool for tool in task.tools if tool not in self.tools]
            if unknown:
                raise ValueError(
                    f"{task_key(name)}.tools names {unknown}, which have no [tools.NAME] table: "
                    f"there are {', '.join(self.tools) or 'none'}"
                )
        return self

    @model_validator(mode="after")
    def _tasks_fit_together(self) -> Shared:
        for name, task in self.tasks.items():
            if TASK_NAME.fullmatch(name) is None:
                raise ValueError(
                    f"tasks.{name}: a task's name is part of metrics' names: use at most 40 "
                    "letters, digits and - _, a letter first"
                )
            if task.dynamic_sampling != self.task.dynamic_sampling:
                raise ValueError(
                    f"tasks.{name}.dynamic_sampling: a batch is filled over all tasks: write "
                    "[task.dynamic_sampling]"
                )
        if self.tasks and not any(task.weight for task in self.tasks.values()):
            raise ValueError("every task has weight = 0: nothing would be trained")
        return self

    @model_validator(mode="after")
    def _every_task_has_groups(self) -> Shared:
        for name, groups in self.allotment.items():
            if not groups:
                raise ValueError(
                    f"tasks.{name}.share = {self.tasks[name].share:g} is not one whole group of "
                    f"run.groups_per_step = {self.run.groups_per_step}: raise the share or "
                    "groups_per_step, or leave the task out"
                )
        return self

    @model_validator(mode="after")
    def _groups_can_differ(self) -> Shared:
        if self.task.dynamic_sampling is not None and self.run.group_size == 1:
            raise ValueError(
                "task.dynamic_sampling compares the rollouts of a group, and run.group_size = 1 "
                "keeps every group: raise run.group_size or leave [task.dynamic_sampling] out"
            )
        return self

    @model_validator(mode="after")
    def _branches_have_room(self) -> Shared:
        size = self.run.group_size
        for name, task in self.each_task.items():
            branching, key = task.branching, task_key(name)
            if branching is not None and branching.starters(size) >= size:
                raise ValueError(
                    f"run.group_size = {size} leaves no member for a branch where "
                    f"{branching.starters(size)} begin at the prompt ({key}.branching.init): raise "
                    f"run.group_size, lower init, or leave [{key}.branching] out"
                )
        return self

    @model_validator(mode="after")
    def _one_table_a_service(self) -> Shared:
        """A trajectory has one session on a service."""
        tables: dict[str, str] = {}
        for name in self.used_tools:
            address = self.tools[name].service
            first = tables.setdefault(address, name) if address else name
            if first != name:
                raise ValueError(
                    f"tools.{first} and tools.{name} are both {address}: "
                    f"make it one table, with the tools' names in tools.{first}.names"
                )
        return self
