"""docs/train/when-it-does-not-learn.md names nothing that is not there: every text between
backquotes is of a kind that is looked up, or one of the few that are listed here."""

from __future__ import annotations

import re

import pytest

from tests.support.docs import DOCS
from tests.support.docs_names import COMMANDS, TABLES, has_key, is_learner_field
from tests.support.metric_names import OF_A_PROCESS, all_names
from toolwright.imports import load_object
from toolwright.types import StopReason, ToolErrorKind

PAGE = (DOCS / "train" / "when-it-does-not-learn.md").read_text(encoding="utf-8")
METRICS = (DOCS / "operate" / "metrics.md").read_text(encoding="utf-8")
KEY = re.compile(rf"((?:{'|'.join(TABLES)})(?:\.[A-Za-z_]+)+)(?: = .+)?")
OTHERS = {
    "warning", "fruitless", "reward_failed", "reason", "outcome", "keep", "Score", "grpo", "system",
    "-sampled", "my-run/run", "errored", "OMP_NUM_THREADS=1", "--memory-mib", "--max-sessions",
    "learner.jsonl", "evaluations.jsonl", "tools.NAME.log", "console/logs",
}  # fmt: skip
"""Files, labels and words of other pages."""
TEXT = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
NAMES = sorted({" ".join(name.split()) for name in re.findall(r"`([^`]+)`", TEXT)})


def fault_of(name: str) -> str:
    """Why the page may not name it; empty where it may."""
    if name in OTHERS or re.fullmatch(r'"[\w+]+"', name):
        return ""
    if name.startswith("toolwright_"):
        shown = name.removesuffix("_total") in all_names() or OF_A_PROCESS.search(name)
        return "" if shown else "no process shows this metric"
    if name.isupper():
        ends = {*StopReason.__members__, *ToolErrorKind.__members__}
        return "" if name in ends else "neither a stop reason nor a tool's error"
    if key := KEY.fullmatch(name):
        return "" if has_key(key[1]) else "no recipe has this key"
    if re.match(rf"(?:{'|'.join(COMMANDS)}) ", name):
        program, word = name.split()[:2]
        return "" if word in COMMANDS[program].commands else "no such command"
    if name.startswith("stop/") and name != "stop/REASON":
        reason = name.removeprefix("stop/").upper()
        return "" if reason in StopReason.__members__ else "no stop reason"
    if ":" in name:
        load_object(name, DOCS)
        return ""
    if re.fullmatch(r"[a-z_0-9]+(?:/[A-Z]+)?", name):
        if not is_learner_field(name):
            return "the learner writes no such field"
        return "" if f"`{name}`" in METRICS else "docs/operate/metrics.md has no such field"
    return "of no kind that is looked up"


@pytest.mark.parametrize("name", NAMES)
def test_what_the_page_names_is_there(name: str) -> None:
    assert not fault_of(name)


def test_every_stop_reason_of_the_engine_is_explained_by_a_symptom() -> None:
    """Those that the record's page lists, but for a good end."""
    page = (DOCS / "understand" / "trajectories.md").read_text(encoding="utf-8")
    table = page.partition("### Stop reasons")[2].partition("A reward that failed")[0]
    reasons = set(re.findall(r"\b[A-Z]+_[A-Z_]+\b", table)) - {"TIMED_OUT", "TOOL_SIGNALED_DONE"}
    told = {name.removeprefix("stop/").upper() for name in NAMES}
    assert reasons <= told
