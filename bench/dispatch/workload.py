"""What the engine is given to do: a toy tokenizer, endless questions, a reward of 0, a recipe."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from toolwright.types import Task, Trajectory

STOP = "</noop>"
END = "<|im_end|>"
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """In-flight trajectories, tokens a second of each, tokens between calls, calls in all."""

    concurrency: int
    rate: float
    every: int
    calls: int
    calls_per_trajectory: int = 20

    @property
    def trajectories(self) -> int:
        """Whole rounds of `concurrency` trajectories that make at least `calls` calls."""
        a_round = self.concurrency * self.calls_per_trajectory
        return self.concurrency * -(-self.calls // a_round)


def questions(_seed: int) -> Iterator[Task]:
    """The recipe's task source."""
    return (Task(id=str(number), prompt="Go on.") for number in count())


def reward(_trajectory: Trajectory) -> float:
    """The recipe's reward."""
    return 0.0


def write_policy(folder: Path, stop: str = STOP) -> int:
    """A byte-level tokenizer with two special tokens, as a policy folder without weights.

    Returns the id of the token `stop`.
    """
    # Plans read this module's words for `bench --help`, which needs no extra.
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from tokenizers import processors as _processors

    folder.mkdir(parents=True, exist_ok=True)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: number for number, character in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = _processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens([END, stop])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    size = tokenizer.get_vocab_size()
    (folder / "config.json").write_text(
        json.dumps({"model_type": "qwen3", "vocab_size": size}), encoding="utf-8"
    )
    return int(tokenizer.get_vocab()[stop])


def recipe(load: Load, *, folder: Path, sampler: int, tools: int, engine: int) -> str:
    """The TOML text; ports on loopback."""
    response = (load.calls_per_trajectory + 2) * (load.every + 4)
    return f"""
[run]
name = "dispatch"
folder = "{folder}/run"
steps = 1
groups_per_step = {load.trajectories}
group_size = 1
engine = "127.0.0.1:{engine}"

[policy]
model = "{folder}/policy"

[task]
source = "bench.dispatch.workload:questions"
reward = "bench.dispatch.workload:reward"
protocol_options = {{ observation = " {{text}} " }}
[task.limits]
turns = {load.calls_per_trajectory}
action = {4 * load.every}
response = {response}

[sampler]
endpoints = ["http://127.0.0.1:{sampler}"]

[tools.noop]
service = "127.0.0.1:{tools}"

[engine]
max_concurrent = {load.concurrency}
"""
