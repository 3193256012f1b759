"""Trajectories for reading: which ones are shown, and how they look in a terminal."""

from __future__ import annotations

from rich.text import Text

from console.record.types import WAYS, Record, Sample
from console.report.suites import NamedSuite
from toolwright.page.text import plain

STYLES = {"prompt": "dim", "model": "bold cyan", "tool": "green"}
TURN_MARKS = ("<|im_start|>", "<|im_end|>")
SHOWN = 3
"""Trajectories of a version."""
LONGEST = 4000
"""Characters of a segment that are shown."""


def before_and_after(
    record: Record, named: NamedSuite | None
) -> tuple[tuple[Sample, ...], tuple[Sample, ...]]:
    """The first questions of a suite at its first and at its last version; the suite is one of
    `asked`, or another that has samples. The second is empty where there is one version."""
    wanted = [named.ways[way] for way in WAYS if way in named.ways] if named else []
    there = dict.fromkeys(sample.suite for sample in record.samples)
    suite = next((name for name in [*wanted, *there] if name in there), None)
    own = [sample for sample in record.samples if sample.suite == suite]
    steps = sorted({sample.step for sample in own})

    def at(step: int) -> tuple[Sample, ...]:
        found = sorted((s for s in own if s.step == step), key=lambda s: s.index)
        return tuple(found[:SHOWN])

    return (at(steps[0]) if steps else ()), (at(steps[-1]) if len(steps) > 1 else ())


def as_text(sample: Sample) -> Text:
    """One trajectory in a few lines, coloured by author."""
    text = Text()
    for author, words in segments(sample):
        if author == "prompt":
            text.append(plain(words) + "\n    ", style=STYLES[author])
        else:
            text.append(plain(words), style=STYLES.get(author, ""))
    text.append(f"\n    {verdict(sample)}", style="green" if sample.reward > 0 else "red")
    return text


def segments(sample: Sample) -> list[tuple[str, str]]:
    """(author, text), the question instead of the whole first prompt, long texts shortened."""
    found = []
    for number, (author, text) in enumerate(sample.segments):
        if author == "prompt" and not number:
            text = question(text)
        if len(text) > LONGEST:
            half = LONGEST // 2
            text = f"{text[:half]} [... {len(text) - LONGEST:,} characters ...] {text[-half:]}"
        found.append((author, text))
    return found


def verdict(sample: Sample) -> str:
    """Right or wrong where rewards are 1 or 0, else the reward; and why it ended early."""
    early = "" if sample.stop_reason in ("", "answered") else f", {plain(sample.stop_reason)}"
    if sample.reward == 1:
        return f"right{early}"
    if sample.reward == 0 and sample.answers:
        return f"wrong{early}, it is {plain(' or '.join(sample.answers))[:LONGEST]}"
    return f"reward {sample.reward:.3g}{early}"


def question(prompt: str) -> str:
    """What the user said last in a prompt of <|im_start|> turns; else the prompt as it is."""
    start, end = TURN_MARKS
    for turn in reversed(prompt.split(start)):
        role, newline, rest = turn.partition("\n")
        if role == "user" and newline:
            return rest.partition(end)[0].strip()
    return prompt.strip()
