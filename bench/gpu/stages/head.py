"""The output layer: log-probs, entropies and gradients beside float64, its time and its memory."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import torch

from bench.gpu.stages import Figures, Scale, machine
from learner.model import head as output_layer
from learner.model.head import Entropy, Wanted, scores
from learner.ranks import device

LIMITS = {torch.bfloat16: 1e-2, torch.float32: 1e-5}
CHUNKS_MIB = (128, 512, 1024)
TARGETS = 12_000


def head(scale: Scale) -> Figures:
    """Distance from float64 of log-probs, entropies and two gradients; milliseconds of a forward
    and backward of 12,000 targets by size of the chunks, with and without compiled passes."""
    dtype = torch.bfloat16 if device.has_cuda() else torch.float32
    vocabulary, hidden = (301, 32) if scale.small else (151_936, 1024)
    figures: Figures = {"distance": {}, "ms": {}}
    entropies: tuple[Entropy, ...] = ("metric", "loss")
    for entropy in entropies:
        case = _Case(300, vocabulary, hidden, dtype)
        want = case.plain(entropy)
        for compiled in (False, True):
            with _passes(compiled=compiled):
                got = case.ours(entropy)
            far = [
                float((a.double() - b).norm() / b.norm()) for a, b in zip(got, want, strict=True)
            ]
            figures["distance"][f"{entropy}, {'compiled' if compiled else 'plain'}"] = far
            if max(far) > LIMITS[dtype]:
                raise AssertionError(f"too far from float64: {far}")
    for mib in CHUNKS_MIB:
        for compiled in (False, True):
            name = f"{mib} MiB, {'compiled' if compiled else 'plain'}"
            with (
                _passes(compiled=compiled),
                patch.object(output_layer, "chunk_bytes", lambda mib=mib: mib << 20),
            ):
                targets = 300 if scale.small else TARGETS
                figures["ms"][name] = _Case(targets, vocabulary, hidden, dtype).times()
    return figures


def _passes(*, compiled: bool) -> AbstractContextManager[Any]:
    """Whether torch.compile joins the passes over a chunk while the block runs."""
    chosen = device.compiled if compiled else (lambda function: function)
    return patch.object(device, "compiled", chosen)


class _Case:
    """Random hidden states, weights, targets, temperatures and incoming gradients."""

    def __init__(self, targets: int, vocabulary: int, hidden: int, dtype: torch.dtype) -> None:
        torch.manual_seed(0)
        where = device.device()
        self._hidden = torch.randn(targets, hidden).to(where, dtype)
        self._weight = (torch.randn(vocabulary, hidden) * 0.05).to(where, dtype)
        self._targets = torch.randint(0, vocabulary, (targets,)).to(where)
        self._temperature = (torch.rand(targets) + 0.5).to(where)
        self._for_logp, self._for_entropy = torch.randn(2, targets).to(where)

    def ours(self, entropy: Entropy) -> list[torch.Tensor]:
        hidden, weight = (t.clone().requires_grad_() for t in (self._hidden, self._weight))
        wanted = Wanted(
            index=torch.arange(len(hidden), device=hidden.device),
            targets=self._targets,
            temperature=self._temperature,
            entropy=entropy,
        )
        return self._backward(hidden, weight, *scores(hidden, weight, wanted), entropy)

    def plain(self, entropy: Entropy) -> list[torch.Tensor]:
        """The same numbers in float64."""
        hidden, weight = (t.double().clone().requires_grad_() for t in (self._hidden, self._weight))
        logits = hidden @ weight.t() / self._temperature.double().unsqueeze(-1)
        every = torch.log_softmax(logits, -1)
        logp = every.gather(-1, self._targets.unsqueeze(-1)).squeeze(-1)
        return self._backward(hidden, weight, logp, -(every.exp() * every).sum(-1), entropy)

    def _backward(
        self,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        logp: torch.Tensor,
        entropies: torch.Tensor,
        entropy: Entropy,
    ) -> list[torch.Tensor]:
        loss = (logp * self._for_logp.to(logp.dtype)).sum()
        if entropy == "loss":
            loss = loss + (entropies * self._for_entropy.to(logp.dtype)).sum()
        loss.backward()
        assert hidden.grad is not None
        assert weight.grad is not None
        return [logp.detach(), entropies.detach(), hidden.grad, weight.grad]

    def times(self) -> Figures:
        """The first of three includes compiling."""
        machine.forget_peak()
        ms = []
        for _ in range(3):
            machine.wait()
            began = time.monotonic()
            self.ours("metric")
            machine.wait()
            ms.append(round(1000 * (time.monotonic() - began), 1))
        return {"each": ms, "peak_gb": machine.peak_gb()}
