"""The arithmetic task as a subject of the demonstration, for a pretrained model."""

from __future__ import annotations

from pathlib import Path

from bench.demo.subject import ROOT, Subject, Suite


def arithmetic(model: Path) -> Subject:
    """`model`: the Hugging Face folder that every seed starts from."""
    return Subject(
        name="arithmetic",
        recipe=ROOT / "recipes/arithmetic.toml",
        example=ROOT / "examples/arithmetic",
        model=model,
        suites=(
            Suite(name="unseen-wordings", key="unseen_wordings", title="wordings never trained on"),
            Suite(name="heldout", key="heldout", title="trained wordings, new numbers"),
        ),
        sandboxes=32,
        threads=2,
        headline="Success on wordings never trained on",
        lead=(
            "SmolLM2-135M-Instruct, a pretrained language model, learnt from reward which line of "
            "Python an arithmetic question asks for, through a real sampler, real sandboxes and a "
            "real learner on this machine."
        ),
        warm_up=(
            "The warm-up taught how Python is called, from few demonstrations whose operator is "
            "right two times in five. What is gained between the two columns was learnt from "
            "reward. Both columns are measured on the same questions: their numbers are never "
            "trained on, and those of the first row are asked in English that is never trained "
            "on either."
        ),
        note=(
            "± is one standard error over questions. A policy of random weights learns a map of "
            "the wordings that it is shown; whatever a pretrained one gains on others is English "
            "that it knew before."
        ),
    )
