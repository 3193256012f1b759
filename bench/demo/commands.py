"""How each process of the demonstration is called: the one place that knows the command lines.

They are what a user would type; addresses, folders and seeds come as `--set` overrides of one
recipe.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.processes import Command

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "recipes/calculator.toml"
EXAMPLE = ROOT / "examples/calculator"

ENVIRONMENT = {
    # Several processes share few cores: one thread each is by far the fastest.
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


def sampler(model: Path, port: int) -> Command:
    """The real SGLang server. It is told to stop when nothing is in flight: no grace needed."""
    launcher = ROOT / "deploy/sglang-cpu/serve.py"
    argv = (sys.executable, str(launcher), str(model), str(port), "--skip-tokenizer-init")
    return _command("sampler", argv, grace_s=3.0)


def tools(address: str) -> Command:
    # As many sandboxes ready as trajectories start at once.
    serve = (_script("toolsvc"), "serve", "python", "--ready", "128", "--listen", address)
    return _command("tools", serve)


def policy(name: str, output: Path, seed: int) -> Command:
    return _command(name, _example("policy.py", output, seed))


def demonstrations(name: str, output: Path, seed: int) -> Command:
    return _command(name, _example("demonstrations.py", output, seed))


def render(name: str, overrides: Overrides) -> Command:
    return _command(name, (_script("engine"), "render", str(RECIPE), *_set(overrides)))


def sft(name: str, overrides: Overrides) -> Command:
    return _command(name, (_script("learner"), "sft", str(RECIPE), *_set(overrides)))


def engine(name: str, overrides: Overrides) -> Command:
    return _command(name, (_script("engine"), "serve", str(RECIPE), *_set(overrides)))


def learner(name: str, overrides: Overrides) -> Command:
    return _command(name, (_script("learner"), "run", str(RECIPE), *_set(overrides)))


def _command(name: str, argv: tuple[str, ...], grace_s: float = 10.0) -> Command:
    return Command(name=name, argv=argv, environment=ENVIRONMENT, grace_s=grace_s)


def _script(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def _example(file: str, output: Path, seed: int) -> tuple[str, ...]:
    return (sys.executable, str(EXAMPLE / file), "--output", str(output), "--seed", str(seed))


def _set(overrides: Overrides) -> tuple[str, ...]:
    return tuple(part for key, value in overrides.items() for part in ("--set", f"{key}={value}"))
