"""One rollout of an environment of the package `verifiers`, as an agent of `agents serve`.

    python play.py env.toml                  one rollout of the task that TOOLWRIGHT_TASK names
    python play.py env.toml tasks.jsonl      writes the environment's tasks as a file of tasks

`env.toml` is an environment of verifiers, the content of its table [env]. Seats without a client of
their own play the policy, each as an agent of its name.

Invariants
- The environment and its rewards are trusted, and what the policy writes is not: no program of the
  policy runs beside them. A harness that executes code needs a runtime of its own, such as docker.
- A rollout that failed outside of the policy reports no reward and exits with RETRY.
- Nothing is downloaded: programs of harnesses run with this interpreter.

The file imports verifiers 0.4 and the standard library alone, so that a jail can hold a copy of it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import tomllib
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from verifiers.v1.clients import EvalClientConfig, ModelContext
from verifiers.v1.configs.agent import agent_config_fields
from verifiers.v1.runtimes import SubprocessConfig
from verifiers.v1.runtimes.subprocess import SubprocessRuntime
from verifiers.v1.utils.loaders import harness_class, load_environment, resolve_env_config

RETRY = 75
"""Exit code of a rollout that failed outside of the policy: put it into task.agent.retry_exits."""
MOST_TASKS = 1_000_000
"""Tasks that are written of a set without an end."""
_HARNESS, _RUNTIME = {"id": "null"}, {"type": "subprocess"}
_POLICYS = ("HarnessError",)
"""Errors that the policy may have brought about: their rollouts are kept."""


class Fault(Exception):
    """What keeps a rollout from starting. The message names the key or the file."""


async def prepare_here(
    runtime: Any, script: str | bytes, env: Mapping[str, str] | None = None, **_: Any
) -> list[str]:
    """Stands in for the runtime's own preparation, which downloads what a program needs: it runs
    with this interpreter, which has that."""
    data = script.encode() if isinstance(script, str) else script
    name = f".program-{hashlib.sha256(data).hexdigest()[:16]}.py"
    await runtime.write(name, data)
    return [sys.executable, "-P", str(runtime.workdir / name)]


def opened(file: Path) -> vf.Env[Any]:
    """The environment of a TOML file. Raises Fault."""
    try:
        data = tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise Fault(f"{file}: {error}") from error
    if not data.get("taskset", {}).get("id"):
        raise Fault(f"{file}: [taskset] has no id, the name of an installed set")
    config = resolve_env_config(data)
    for seat in agent_config_fields(config):
        given = dict(data.get(seat) or {})
        data[seat] = {**given, "runtime": {**_RUNTIME, **given.get("runtime", {})}}
        if "harness" not in given and config.agent_harnesses()[seat].id == "bash":
            data[seat]["harness"] = _HARNESS
    config = resolve_env_config(data)
    for seat, spec in agent_config_fields(config).items():
        harness = config.agent_harnesses()[seat]
        if harness_class(harness.id).EXECUTES_CODE and isinstance(spec.runtime, SubprocessConfig):
            raise Fault(
                f"{file}: harness {harness.id!r} of {seat!r} lets the policy run programs beside "
                f"the rewards: set {seat}.runtime.type to docker, or {seat}.harness.id to null"
            )
    return load_environment(config)


def task_of(env: vf.Env[Any], metadata: Mapping[str, Any]) -> vf.Task[Any, Any, Any]:
    """The task of the set that a row of `rows` named. Raises Fault."""
    number = metadata.get("idx")
    if not isinstance(number, int | float) or int(number) != number or number < 0:
        raise Fault(
            f"metadata.idx is {number!r}: write the tasks with play.py ENV.toml TASKS.jsonl"
        )
    task = next(islice(env.taskset, int(number), None), None)
    if task is None or task.hash != metadata.get("hash"):
        raise Fault(f"task {int(number)} of the set is another one now: write the tasks again")
    return task


def rows(env: vf.Env[Any]) -> Iterator[dict[str, Any]]:
    """The set's tasks as rows of a task file, without what the rewards compare with."""
    for task in islice(env.taskset, MOST_TASKS):
        data = task.data
        prompt = data.prompt_text or data.description or data.name or f"task {data.idx}"
        yield {
            "id": str(data.id or f"{env.config.env_id}-{data.idx}"),
            "prompt": prompt,
            "data_source": env.config.env_id,
            "metadata": {"idx": data.idx, "hash": task.hash},
        }


def with_clients(env: vf.Env[Any], base_url: str) -> None:
    """Gives each seat without a client the policy's, under the seat's name."""
    for seat, spec in agent_config_fields(env.config).items():
        if spec.client is None:
            spec.client = EvalClientConfig(
                base_url=base_url,
                api_key_var="OPENAI_API_KEY",
                headers={"x-toolwright-agent": seat},
            )


async def play(env: vf.Env[Any], task: vf.Task[Any, Any, Any], base_url: str) -> vf.Episode:
    """One episode."""
    SubprocessRuntime.prepare_uv_script = prepare_here
    with_clients(env, base_url)
    policy = os.environ.get("TOOLWRIGHT_MODEL", "policy")
    client = EvalClientConfig(base_url=base_url, api_key_var="OPENAI_API_KEY")
    async with env.serving():
        (slot,) = env.slots(task)
        return await env.run_slot(slot, ModelContext(model=policy, client=client))


def result_of(episode: vf.Episode) -> dict[str, Any]:
    """The content of the result file: the mean reward of the trained seats, and its parts."""
    traces = [one for one in episode.traces if one.agent is None or one.agent.trainable]
    traces = traces or list(episode.traces)
    parts: dict[str, float] = {}
    for trace in traces:
        for name, reward in trace.rewards.items():
            if reward is not None:
                parts[name] = parts.get(name, 0.0) + reward.value / len(traces)
    reward = sum(trace.reward for trace in traces) / len(traces)
    return {"answer": traces[-1].last_reply, "reward": reward, "parts": parts}


def failure_of(episode: vf.Episode) -> tuple[int, str]:
    """Exit code and error of an episode that failed; (0, "") for another."""
    if episode.ok:
        return 0, ""
    errors = [error for trace in episode.traces for error in trace.errors] + list(episode.errors)
    if not errors:
        return 1, "the episode failed without an error"
    policys = all(error.type in _POLICYS for error in errors)
    return (1 if policys else RETRY), f"{errors[-1].type}: {errors[-1].message}"


def main(words: list[str]) -> int:
    if len(words) not in (1, 2):
        print("usage: play.py ENV.toml [TASKS.jsonl]", file=sys.stderr)
        return 2
    sys.path.insert(0, os.getcwd())
    try:
        env = opened(Path(words[0]))
        if len(words) == 2:
            lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows(env)]
            Path(words[1]).write_text("".join(lines), encoding="utf-8")
            print(f"{words[1]}: {len(lines)} tasks of {env.config.env_id}")
            return 0
        given = json.loads(Path(os.environ["TOOLWRIGHT_TASK"]).read_text("utf-8"))
        result = Path(os.environ.pop("TOOLWRIGHT_RESULT"))
        episode = asyncio.run(
            play(env, task_of(env, given["metadata"]), os.environ["OPENAI_BASE_URL"])
        )
    except Fault as fault:
        print(f"play: {fault}", file=sys.stderr)
        return 1
    code, error = failure_of(episode)
    if code:
        print(f"play: {error}", file=sys.stderr)
        return code
    result.write_text(json.dumps(result_of(episode)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
