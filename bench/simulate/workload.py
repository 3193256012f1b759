"""What the simulated engine is given: a policy folder, questions, rewards, a recipe.

The recipe names `questions` and the rewards by their import paths, as any recipe does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from random import Random

from bench.engine.plan import END
from bench.engine.processes.policy import TEMPLATE, write_policy
from bench.history.derived.contents import checksum
from bench.history.events import RewardCalled
from bench.simulate.schedule import Workload
from bench.simulate.virtual.loop import alive_here, loop_here
from engine.api import Score
from toolwright.types import Task, Trajectory

STOP = "</c>"
"""One token of the policy's vocabulary."""
TEXT_STOP = "</k>"
"""Four tokens of it."""
END_ID, STOP_ID = 256, 257
"""`write_policy` numbers the special tokens after the 256 bytes, in this order."""
VOCABULARY = 258
TOOLS = "tools:1"
"""The tool service's address; no server listens there."""
DYNAMIC = """[task.dynamic_sampling]
max_gen_batches = 4"""
LEASE_S = 12.0
"""Length of a session's lease, in seconds."""
UNFIT = "unfit"
"""Key of a task's metadata: the tool refuses it."""
KEEPS = 12
"""One score in so many masks its trajectory, and one keeps it whatever its stop."""
BRANCHING = """[task.branching]
tokens = 4
top_k = 3"""


REWARD_WITNESSES: list[Callable[[RewardCalled], None]] = []
"""See each call of the reward function, of the run that is played."""


def ids_of(text: str) -> list[int]:
    """Token ids of printable ASCII text."""
    return [ord(letter) - 33 for letter in text]


def text_of(token_ids: Iterable[int]) -> str:
    """Inverse of `ids_of`; the text of special tokens is what the tokenizer says."""
    special = {END_ID: END, STOP_ID: STOP}
    return "".join(special.get(token) or chr(token + 33) for token in token_ids)


def server_url(number: int) -> str:
    return f"http://sampler-{number}:1"


def make_policy(folder: Path, template: str = TEMPLATE) -> Path:
    """A tokenizer with tiny weights, which every publish names again."""
    write_policy(folder, STOP, template)
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    data = len(header).to_bytes(8, "little") + header + bytes(4)
    (folder / "model.safetensors").write_bytes(data)
    return folder


def questions(seed: int) -> Iterator[Task | str]:
    """The task source. `seed`: see `source_seed`."""
    dice = Random(f"rows {seed}")
    unfit, bad = seed // 100 % 100, seed % 100
    for number in count():
        drawn = 100 * dice.random() if number else 100.0  # the first one is the rehearsal's
        if drawn < bad:
            yield "no task"
        else:
            metadata = {UNFIT: True} if drawn < bad + unfit else {}
            yield Task(id=str(number), prompt=f"#{number}:", metadata=metadata)


def source_seed(workload: Workload) -> int:
    """The run's seed in decimal digits. The last two are the per cent of rows that are not tasks.
    The two before are the per cent of tasks that the tool refuses."""
    unfit, bad = round(100 * workload.unfit_rows), round(100 * workload.bad_rows)
    return 10_000 * (workload.seed % 100_000) + 100 * unfit + bad


def suite(_seed: int) -> Iterator[Task]:
    """The evaluation's questions."""
    return (Task(id=f"e{number}", prompt=f"?{number}:") for number in count())


def reward(trajectory: Trajectory) -> Score:
    """Score derived from the token ids: reward 0 or 1, and for some a mask or a keep."""
    return _scored(trajectory, alone=True)


def group_reward(trajectories: Sequence[Trajectory]) -> list[Score]:
    return [_scored(trajectory, alone=False) for trajectory in trajectories]


def _scored(trajectory: Trajectory, *, alone: bool) -> Score:
    token_ids = [i for sequence in trajectory.sequences for i in sequence.token_ids]
    contents = checksum([token_ids])
    keep = {0: False, 1: True}.get(contents % KEEPS)
    called = RewardCalled(
        at=loop_here().time(),
        trajectory=trajectory.id,
        contents=contents,
        alone=alone,
        masks=keep is False,
    )
    if alive_here():
        for see in REWARD_WITNESSES:
            see(called)
    return Score(reward=float(contents // KEEPS % 2), keep=keep)


def recipe(workload: Workload, *, policy: Path, folder: Path) -> str:
    """The TOML text."""
    work = workload
    endpoints = json.dumps([server_url(number) for number in range(work.servers)])
    rewards = "group_reward" if work.per_group else "reward"
    suites = ""
    if work.suite:
        suites = f"""
[engine.evaluation]
every = 1
max_concurrent = {work.places if work.may_be_cut else 128}
publish_waits_s = {work.publish_waits_s}
[[engine.evaluation.suites]]
name = "suite"
source = "bench.simulate.workload:suite"
n = {work.suite}
"""
    return f"""
[run]
name = "simulated"
folder = "{folder}/run"
seed = {source_seed(work)}
steps = {work.steps}
groups_per_step = {work.groups_per_step}
group_size = {work.group_size}
max_staleness = {work.eta}
correction = "{"decoupled" if work.eta else "bypass"}"

[policy]
model = "{policy}"

[task]
source = "bench.simulate.workload:questions"
reward = "bench.simulate.workload:{rewards}"
reward_per_group = {str(work.per_group).lower()}
protocol = "bench.simulate.neighbours.protocol:Separated"
protocol_options = {{ marked = {str(work.marked).lower()} }}
[task.limits]
turns = {work.turns}
action = {3 * work.tokens[1] + 40}
response = {(work.turns + 1) * (4 * work.tokens[1] + 80)}
seconds = 120.0
{DYNAMIC if work.dynamic else ""}
{BRANCHING if work.branching else ""}

[sampler]
endpoints = {endpoints}
stream_interval = {work.interval}
pause = "{work.pause}"
timeout_s = 20.0
patience_s = {work.sampler_patience_s}

[tools.count]
service = "{TOOLS}"
lease_s = {LEASE_S}
patience_s = {work.patience_s}
queue_limit_s = 10.0
run_limit_s = 30.0

[engine]
max_concurrent = {'"auto"' if work.cache_tokens else work.places}
patience_s = {work.patience_s}
drain_s = 5.0
history = "{"all" if work.keep_history else "open"}"
{suites}"""
