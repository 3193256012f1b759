"""One run as a row of the list: its state, how far it is, what it was measured by."""

from __future__ import annotations

import time
from typing import Any

from console.course.state import State, state_of
from console.machine import pids
from console.record.changes import sentences
from console.record.restarts import tool_restarts
from console.record.run import RunFiles
from console.redact import redactor
from console.report.figures import score
from console.report.headline import are_shares, headline, judge_run, questions
from console.report.suites import change, named_suites, shown_suites
from console.watch import doubts
from toolwright.page.plot import short, thin
from toolwright.text.figures import restarted

MOST_REWARDS = 60
MOST_SUITES = 2
LONGEST = 400
"""Characters of a sentence."""


def summary(run: RunFiles, *, fresh: bool) -> dict[str, Any]:
    """`word` (see `standing`), `sentence`, `headline`, `steps`, `planned`, `reward` of the newest
    step, `rewards` (of all steps, thinned), `suites`, `began` and `seconds` that it took so far,
    `control` and `doubts`."""
    clean = redactor(names=False)
    state = standing(run, fresh=fresh)
    asked = shown_suites(named_suites([run]), run.resolved.words)
    main = asked[0] if asked else None
    judgement = judge_run(run, main)
    found = headline(
        judgement,
        main,
        run.resolved.words,
        shares=are_shares([run]),
        questions=questions([run], judgement),
    )
    steps = run.record.steps
    rewards = [(one.step, one.reward) for one in steps if one.reward is not None]
    return {
        "word": state.word,
        "sentence": clean.text(state.sentence)[:LONGEST],
        "headline": found,
        "steps": run.steps,
        "planned": run.planned,
        "reward": state.reward,
        "rewards": [[step, short(reward)] for step, reward in thin(rewards, MOST_REWARDS)],
        "suites": [
            {"title": one.title, "before": score(measured.before), "after": score(measured.after)}
            for one in asked[:MOST_SUITES]
            if (measured := change(run.record.curve(one.main))) is not None
        ],
        "began": run.began,
        "seconds": _seconds(run, going=state.word == "running"),
        "control": run.resolved.control,
        "doubts": len(doubts_of(run)),
    }


def standing(run: RunFiles, *, fresh: bool) -> State:
    """What `toolwright status` says, without a call to the engine. fresh: a log grew lately, which
    stands for an answer of a run that this machine did not start."""
    course = run.course
    return state_of(run, here=pids.is_here(course), lives=pids.lives_in(course), answers=fresh)


def doubts_of(run: RunFiles) -> list[str]:
    """What should make a person look closer, a sentence each."""
    of_steps = doubts.of_steps(run.record.steps, run.resolved.text("task.reward"))
    ended = restarted(tool_restarts(run.folder))
    return [*of_steps, *([ended] if ended else []), *sentences(run.course)]


def _seconds(run: RunFiles, *, going: bool) -> float | None:
    """Time of its stages, pauses left out. Without stages, from its first sign to its last."""
    if run.course.stages and (going or run.course.ended is not None):
        return sum(stage.seconds for stage in run.course.stages)
    if run.began is None:
        return None
    end = time.time() if going else run.last
    return None if end is None else max(0.0, end - run.began)
