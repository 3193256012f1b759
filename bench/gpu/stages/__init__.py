"""The stages of the proof by name, in the order in which they run.

A stage is a function of `Scale` that returns figures as JSON values. It raises where a figure is
wrong. Stages import torch and the learner when they run, so this table costs nothing to read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """small: sizes that a CPU serves in seconds."""

    small: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """function: module and name. seconds: about, on one H100. says: what it shows."""

    function: str
    seconds: int
    says: str

    def run(self, scale: Scale) -> Figures:
        module, _, name = self.function.partition(":")
        found: Callable[[Scale], Figures] = getattr(
            import_module(f"bench.gpu.stages.{module}"), name
        )
        return found(scale)


STAGES: dict[str, Stage] = {
    "machine": Stage(function="machine:machine", seconds=1, says="versions and device"),
    "parity": Stage(
        function="parity:parity",
        seconds=14,
        says="a float32 step beside float64 transformers: Qwen2, Qwen3, Llama",
    ),
    "bfloat16": Stage(
        function="parity:bfloat16",
        seconds=6,
        says="Adam, Muon and LoRA in bfloat16; micro-batches of any size; resume to the bit",
    ),
    "attention": Stage(
        function="attention:attention",
        seconds=8,
        says="attention of a packed row: kernels beside float64, time at lengths never seen",
    ),
    "head": Stage(
        function="head:head",
        seconds=19,
        says="the output layer: chunks and compiled passes beside float64, time and memory",
    ),
    "kernels": Stage(
        function="kernels:kernels",
        seconds=30,
        says="fused kernels and recompute beside the plain path: gradients, time, memory",
    ),
    "log-probs": Stage(
        function="parity:log_probs",
        seconds=3,
        says="the learner's log-probs beside transformers', the same weights, bfloat16",
    ),
    "nccl": Stage(
        function="collectives:collectives",
        seconds=3,
        says="NCCL with one rank, with and without overlap; publishing needs two devices",
    ),
    "train-0.6B": Stage(
        function="training:train_600m",
        seconds=26,
        says="tokens/s, MFU, memory, kernels, host waits, export, checkpoint, a plain loop beside",
    ),
    "train-1.7B": Stage(function="training:train_1700m", seconds=17, says="the same, briefly"),
    "train-1.7B-recompute": Stage(
        function="training:train_1700m_recompute", seconds=27, says="with full recompute"
    ),
    "train-4B-lora": Stage(function="training:train_4b_lora", seconds=34, says="LoRA of rank 16"),
    "train-4B": Stage(
        function="training:train_4b", seconds=100, says="all weights, above 100 GB of memory only"
    ),
    "whole-loop": Stage(
        function="whole_loop:whole_loop",
        seconds=35,
        says="real engine, scripted sampler and tool, with the learner on the device",
    ),
}
