"""The recipe's reward functions, what they may return, and what a stop means for the loss.

A finished trajectory goes from `rewards` (calls the function, on `threads` where it is not async;
`reading` checks what it returned) to `settle`, which applies the `score` and the rules of `stops`;
a group whose members are all settled goes to the recipe's `hook`.
"""

from engine.core.rewards.score import Score

__all__ = ["Score"]
