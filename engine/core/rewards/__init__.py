"""Reward functions of the recipe, their scores, and the effect of stops on the loss.

`rewards` calls the function for a finished trajectory, in `threads` unless it is async, and
`reading` checks the returned value. `settle` applies the `score` and the rules of `stops`. A group
whose members are all settled goes to the recipe's `hook`.
"""

from engine.core.rewards.score import Score as Score
