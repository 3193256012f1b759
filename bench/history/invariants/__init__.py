"""One judge a subject; together all invariants of a history."""

from __future__ import annotations

from bench.history.findings import Invariant, Judge
from bench.history.invariants.answers import Answers
from bench.history.invariants.attempts import Attempts
from bench.history.invariants.effects import Effects
from bench.history.invariants.evaluation import Evaluations
from bench.history.invariants.journal import Journals
from bench.history.invariants.learner_requests import LearnerRequests
from bench.history.invariants.leftovers import Leftovers
from bench.history.invariants.offers import Offers
from bench.history.invariants.scores import Scores
from bench.history.invariants.staleness import Staleness
from bench.history.invariants.tokens import Tokens
from bench.history.invariants.training import Training
from bench.history.invariants.versions import Versions
from bench.history.invariants.workers import Workers

JUDGES: tuple[type[Judge], ...] = (
    Offers, Training, Effects, Workers, Tokens, Answers, Versions, Staleness, Evaluations,
    Journals, Attempts, Scores, LearnerRequests, Leftovers,
)  # fmt: skip

INVARIANTS: tuple[Invariant, ...] = tuple(one for judge in JUDGES for one in judge.invariants)
