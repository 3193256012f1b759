"""The orchestrator: tasks in, trajectories out, new weights to the samplers.

Three floors, each of which imports only those below it:
    offline   programs without a learner: eval, sample, render, check, inspect, replay, analyze
    serving   `engine serve`: admission -> journal -> delivery, publishing, evaluation, status
    core      one trajectory: tasks -> tools (sessions) -> protocols (prompt) -> rollout
              (with sampler and tools) -> trajectory (events, record) -> rewards
Recipes and other programs import `engine.api` alone. Imports without torch.
"""

import sys

from engine.old_names import OldNames

if not any(isinstance(finder, OldNames) for finder in sys.meta_path):
    sys.meta_path.insert(0, OldNames())
