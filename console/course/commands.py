"""How each process of a run is called: the one place that knows the command lines.

They are what a user would type: addresses, folders and seeds come as `--set` overrides of one
recipe. `shown` is that line; `argv` starts the same without regard to PATH, and without looking
for modules in the folder that it runs in.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from console.asked.plan import Maker
from console.asked.ports import address_of, own_services
from console.asked.setup import Setup
from console.config import Service
from console.errors import NothingStarted
from console.machine import sampler_home
from console.machine.processes import Command
from console.machine.programs import module
from toolwright.model.learner_memory import Settings
from toolwright.process.packaged import packaged
from toolwright.recipe import Recipe, tables_in_force

OURS = {
    "engine": "engine.cli",
    "learner": "learner.cli",
    "toolsvc": "toolsvc.cli",
    "memory": "memory.cli",
    "ingress": "ingress.cli",
    "agents": "agents.cli",
    "tasks": "tasks.cli",
    "bench": "bench.cli",
    "toolwright": "console.cli",
}
"""Words that name a command of this installation, and the module that it is."""

SGLANG = "TOOLWRIGHT_SGLANG"
"""Environment variable: the Python of SGLang's environment."""

_QUIET = {
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "PYTHONUNBUFFERED": "1",
}
"""Where the user's environment does not say otherwise."""

_SAFE = {"PYTHONSAFEPATH": "1"}
"""As -P, also for Pythons that know no -P, and for what a process starts."""

_ONE_THREAD = {"OMP_NUM_THREADS": "1"}

LEARNER_GRACE_S = 1800.0
"""A stopping learner finishes its step and writes a checkpoint. A second signal ends it at
once."""
GRACE_S = 15.0
SHARED = 5
"""Exit code of an engine whose sampler another run uses: started again it would fight for it."""
SAMPLER_GRACE_S = 3.0
"""It is told to stop when nothing that counts is in flight."""


def adapter_flags(recipe: Recipe) -> tuple[str, ...]:
    """SGLang's flags for the adapters that the recipe's run publishes; empty for whole weights."""
    if not recipe.shared.run.publish_adapters:
        return ()
    learner = dict(tables_in_force(recipe)).get("learner")
    if not isinstance(learner, Settings) or learner.lora is None:
        return ()
    rank = str(learner.lora.rank)
    return ("--enable-lora", "--max-lora-rank", rank, "--lora-target-modules", "all")


class Commands:
    """Command lines of one run's processes."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._words = {"{seed}": str(setup.seed), "{run}": str(setup.run)}

    def maker(self, maker: Maker) -> Command:
        """What makes a missing thing."""
        if maker.kind == "prepare":
            return self._own(maker.name, maker.run, {"{makes}": str(maker.makes)})
        if maker.kind == "render":
            return self._recipe("render", "engine", ("render",))
        return self._computing("sft", "sft")

    def service(self, service: Service) -> Command:
        if service in own_services(self._setup.recipe):
            return self._recipe(service.name, service.name, service.run[1:])
        address = address_of(service.ready)
        more = {"{address}": address, "{port}": address.rpartition(":")[2]}
        return self._own(service.name, service.run, more)

    def check(self, model: Path) -> Command:
        """`engine check`, with a model of the policy's shape where the policy is not there yet."""
        return self._recipe("check", "engine", ("check",), (f"policy.model={model}",))

    def look(self) -> Command:
        """`engine check` before anything is made: what is missing is left out."""
        return self._recipe("check", "engine", ("check",))

    def engine(self) -> Command:
        drain = self._setup.recipe.raw.get("engine", {}).get("drain_s", 30.0)
        command = self._recipe("engine", "engine", ("serve",), grace_s=float(drain) + GRACE_S)
        return replace(command, final=(SHARED,))

    def learner(self) -> Command:
        return self._computing("learner", "run")

    def sampler(self, name: str, model: Path, url: str) -> Command:
        """SGLang at one of sampler.endpoints."""
        table = self._setup.table.sampler
        host, _, port = address_of(url).rpartition(":")
        python = sampler_python(self._setup)
        launch: tuple[str, ...]
        where: tuple[str, ...]
        if table.way == "gpu":
            launch = (str(python), "-m", "sglang.launch_server", "--model-path", str(model))
            where = ("--host", host, "--port", port, "--incremental-streaming-output")
            environment = {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0", **_SAFE}
        else:
            serve = packaged("deploy/sglang-cpu") / "serve.py"
            launch = (sys.executable, str(serve), str(model), port)
            where = () if host in ("127.0.0.1", "localhost") else ("--host", host)
            environment = {**self._threads(), SGLANG: str(python)}
        more = ("--skip-tokenizer-init", *adapter_flags(self._setup.recipe), *table.flags)
        argv: tuple[str, ...] = (*launch, *where, *more)
        return Command(
            name=name,
            argv=argv,
            shown=shlex.join(argv),
            environment={**_quiet(), **environment},
            grace_s=SAMPLER_GRACE_S,
        )

    def _computing(self, name: str, verb: str) -> Command:
        """A command of the learner, in as many processes as it has ranks."""
        # torchrun starts the ranks, and by `-m` alone.
        environment = {**self._threads(), **_SAFE}
        command = self._recipe(name, "learner", (verb,), (), LEARNER_GRACE_S, environment)
        if (count := self._setup.table.ranks) == 1:
            return command
        ranks = ("--nnodes=1", f"--nproc-per-node={count}")
        meeting = ("--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "-m", OURS["learner"])
        words = command.argv[len(module(OURS["learner"])) :]
        launch = (*ranks, *meeting, *words)
        return replace(
            command,
            argv=module("learner.launch", *launch),
            shown=shlex.join(("python", "-m", "learner.launch", *launch)),
        )

    def _recipe(
        self,
        name: str,
        command: str,
        verb: tuple[str, ...],
        more: tuple[str, ...] = (),
        grace_s: float = GRACE_S,
        environment: Mapping[str, str] = _ONE_THREAD,
    ) -> Command:
        setup = self._setup
        words = (*verb, str(setup.recipe.path), *_set((*setup.overrides, *more)))
        return Command(
            name=name,
            argv=module(OURS[command], *words),
            shown=shlex.join((command, *words)),
            environment={**_quiet(), **environment},
            grace_s=grace_s,
        )

    def _own(self, name: str, run: tuple[str, ...], more: Mapping[str, str]) -> Command:
        """A command that the recipe says, in the recipe's folder."""
        words = [_filled(word, {**self._words, **more}) for word in run]
        return Command(
            name=name,
            argv=(*_found(words[0]), *words[1:]),
            shown=shlex.join(words),
            environment={**_quiet(), **self._threads()},
            folder=self._setup.recipe.folder,
            grace_s=GRACE_S,
        )

    def _threads(self) -> dict[str, str]:
        threads = str(self._setup.table.threads)
        return {
            "OMP_NUM_THREADS": threads,
            "TOOLWRIGHT_SAMPLER_THREADS": threads,
            # A thread that waits for the others leaves its core to who computes.
            "OMP_WAIT_POLICY": "PASSIVE",
        }


def sampler_python(setup: Setup) -> Path:
    """NothingStarted says where it was looked for."""
    named = setup.table.sampler.python
    if named:
        python = setup.recipe.folder / Path(named).expanduser()
        if not python.is_file():
            raise NothingStarted(
                f"console.sampler.python = {named!r}: there is no such file; name the Python of an "
                "environment with SGLang, such as .venv-sglang/bin/python"
            )
        return python
    found = sampler_home.find()
    if found is None:
        looked = " and ".join(map(str, sampler_home.candidates()))
        raise NothingStarted(
            f"a sampler has to be started and SGLang's environment is not found: {looked} are "
            "missing. Make it (`toolwright install-sampler`, in a checkout `make setup`), name its "
            f"Python in console.sampler.python or {SGLANG}, or start a sampler yourself and name "
            "it in sampler.endpoints"
        )
    return found


def _quiet() -> dict[str, str]:
    return {name: value for name, value in _QUIET.items() if name not in os.environ}


def _found(word: str) -> tuple[str, ...]:
    if word in ("python", "python3"):
        return (sys.executable,)
    return module(OURS[word]) if word in OURS else (word,)


def _filled(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(name, value)
    return word


def _set(overrides: Iterable[str]) -> tuple[str, ...]:
    return tuple(part for text in overrides for part in ("--set", text))
