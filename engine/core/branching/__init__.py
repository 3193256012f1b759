"""ARPO's branching rollouts (arXiv:2507.19849): a trajectory parts in two where, after an
observation, the policy has become less certain than it was at the prompt.

`entropy` is the arithmetic, `budget` the members of a group that may become branches, `brancher`
what one rollout does about both.
"""
