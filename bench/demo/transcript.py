"""Trajectories for reading: which ones are shown, and how they look in a terminal."""

from __future__ import annotations

from rich.text import Text

from bench.demo.types import Sample, Trained

STYLES = {"prompt": "dim", "model": "bold cyan", "tool": "green"}
TURN_MARKS = ("<|im_start|>", "<|im_end|>")


def before_and_after(run: Trained, suite: str) -> tuple[tuple[Sample, ...], tuple[Sample, ...]]:
    """The same questions of `suite`, sampled, at the first and at the last version."""

    shown = f"{suite}-sampled"

    def at(step: int) -> tuple[Sample, ...]:
        return tuple(s for s in run.record.samples if (s.suite, s.step) == (shown, step))

    return at(0), at(run.last_step)


def as_text(sample: Sample) -> Text:
    """One trajectory in a few lines, coloured by author."""
    text = Text()
    for author, words in sample.segments:
        if author == "prompt":
            text.append(question(words) + "\n    ", style=STYLES[author])
        else:
            text.append(words, style=STYLES.get(author, ""))
    right = sample.reward > 0
    verdict = "right" if right else f"wrong, it is {' or '.join(sample.answers)}"
    text.append(f"\n    {verdict}", style="green" if right else "red")
    return text


def question(prompt: str) -> str:
    """What the user said last in a prompt of <|im_start|> turns; else the prompt as it is."""
    start, end = TURN_MARKS
    for turn in reversed(prompt.split(start)):
        role, newline, rest = turn.partition("\n")
        if role == "user" and newline:
            return rest.partition(end)[0].strip()
    return prompt.strip()
