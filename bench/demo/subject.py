"""What a demonstration is about: a recipe, the example folder it names, and the report's words.

The recipe's suites of evaluation have to be named for it: of every `Suite` here there are
`<name>-sampled` and `<name>-greedy` with `when = "ends"`, and `curve-sampled` and `curve-greedy`
are asked on the way.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Questions that are asked before and after training; `key` names them in summary.json."""

    name: str
    key: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """`suites`: the first is the one that the headline speaks of."""

    name: str
    recipe: Path
    example: Path
    suites: tuple[Suite, ...]
    sandboxes: int
    """Kept ready: as many as trajectories start at once."""
    threads: int = 1
    """Of the sampler and of the learner, which take turns. One is by far the fastest for a model
    whose operations are small."""
    headline: str
    lead: str
    warm_up: str
    note: str
    model: Path | None = None
    """The folder that every seed starts from; None: the example's policy.py writes one a seed."""

    @property
    def main(self) -> Suite:
        return self.suites[0]

    @property
    def recipe_name(self) -> str:
        return self.recipe.relative_to(ROOT).as_posix()


CALCULATOR = Subject(
    name="calculator",
    recipe=ROOT / "recipes/calculator.toml",
    example=ROOT / "examples/calculator",
    suites=(
        Suite(name="heldout", key="heldout", title="held out"),
        Suite(name="withheld", key="withheld", title="tool's answers withheld"),
        Suite(name="unseen-wordings", key="unseen_wordings", title="wordings never trained on"),
    ),
    sandboxes=128,
    headline="Held-out success",
    lead=(
        "A 0.85-million-parameter policy learnt from reward alone which line of Python a word "
        "problem asks for, through a real sampler, real sandboxes and a real learner on this "
        "machine."
    ),
    warm_up=(
        "The warm-up taught the tool's format from demonstrations that type the right operator "
        "one time in four, which is chance, and guess without the tool one time in seven. What is "
        "gained between the two columns was learnt from reward. Both columns are measured on the "
        "same questions, whose operands training never shows."
    ),
    note=(
        "± is one standard error over questions. “Withheld”: the tool runs and its answer comes "
        "back empty. “Wordings never trained on”: a map of sixteen wordings is learnt here, not "
        "English, so this figure promises nothing."
    ),
)
