"""How each process of a demonstration is called: the one place that knows the command lines.

They are what a user would type; addresses, folders and seeds come as `--set` overrides of one
recipe.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bench.demo.subject import ROOT, Subject
from bench.processes import Command

ENVIRONMENT = {
    # Several processes share few cores: one thread each, where a subject does not say otherwise.
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TORCH_COMPILE_DISABLE": "1",
    "HF_HUB_OFFLINE": "1",
    "PYTHONUNBUFFERED": "1",
}

Overrides = Mapping[str, str | int | float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Ports on loopback of the services that all runs share."""

    sampler: int
    tools: int

    def overrides(self) -> Overrides:
        return {
            "sampler.endpoints": f'["http://127.0.0.1:{self.sampler}"]',
            "tools.python.service": self.tools_address,
        }

    @property
    def sampler_probe(self) -> str:
        return f"http://127.0.0.1:{self.sampler}/ready"

    @property
    def tools_address(self) -> str:
        return f"127.0.0.1:{self.tools}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """Of one subject. `gpu_sampler` is the Python of an environment that runs SGLang on a GPU;
    None: the sampler of this project computes on the CPU."""

    subject: Subject
    gpu_sampler: Path | None = None

    def sampler(self, model: Path, port: int) -> Command:
        """The real SGLang server. It is told to stop when nothing is in flight: no grace needed."""
        if self.gpu_sampler is not None:
            launcher = [str(self.gpu_sampler), "-m", "sglang.launch_server", "--model-path"]
            where = [str(model), "--host", "127.0.0.1", "--port", str(port), *GPU_SAMPLER]
        else:
            launcher = [sys.executable, str(ROOT / "deploy/sglang-cpu/serve.py")]
            where = [str(model), str(port)]
        argv = (*launcher, *where, "--skip-tokenizer-init")
        return self._computing(_command("sampler", argv, grace_s=3.0))

    def tools(self, address: str) -> Command:
        ready = str(self.subject.sandboxes)
        serve = (_script("toolsvc"), "serve", "python", "--ready", ready, "--listen", address)
        return _command("tools", serve)

    def policy(self, name: str, output: Path, seed: int) -> Command:
        return _command(name, self._example("policy.py", output, seed))

    def demonstrations(self, name: str, output: Path, seed: int) -> Command:
        return _command(name, self._example("demonstrations.py", output, seed))

    def render(self, name: str, overrides: Overrides) -> Command:
        return self._with_recipe(name, ("engine", "render"), overrides)

    def sft(self, name: str, overrides: Overrides) -> Command:
        return self._computing(self._with_recipe(name, ("learner", "sft"), overrides))

    def engine(self, name: str, overrides: Overrides) -> Command:
        return self._with_recipe(name, ("engine", "serve"), overrides)

    def learner(self, name: str, overrides: Overrides) -> Command:
        return self._computing(self._with_recipe(name, ("learner", "run"), overrides))

    def _with_recipe(self, name: str, words: tuple[str, str], overrides: Overrides) -> Command:
        script, verb = words
        return _command(name, (_script(script), verb, str(self.subject.recipe), *_set(overrides)))

    def _computing(self, command: Command) -> Command:
        threads = str(self.subject.threads)
        added = {"OMP_NUM_THREADS": threads, "TOOLWRIGHT_SAMPLER_THREADS": threads}
        # A thread that waits for the others leaves its core to who computes.
        environment = {**command.environment, **added, "OMP_WAIT_POLICY": "PASSIVE"}
        return replace(command, environment=environment)

    def _example(self, file: str, output: Path, seed: int) -> tuple[str, ...]:
        script = str(self.subject.example / file)
        return (sys.executable, script, "--output", str(output), "--seed", str(seed))


GPU_SAMPLER = (
    # What docs/7-sampler.md asks of a server on a GPU.
    *("--incremental-streaming-output", "--dtype", "bfloat16"),
    # The learner is on the same GPU.
    *("--mem-fraction-static", "0.3"),
)


def _command(name: str, argv: tuple[str, ...], grace_s: float = 10.0) -> Command:
    return Command(name=name, argv=argv, environment=ENVIRONMENT, grace_s=grace_s)


def _script(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def _set(overrides: Overrides) -> tuple[str, ...]:
    return tuple(part for key, value in overrides.items() for part in ("--set", f"{key}={value}"))
