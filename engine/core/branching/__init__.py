"""ARPO's branching rollouts (arXiv:2507.19849). A trajectory branches after an observation if the
policy has become less certain than it was at the prompt.

`entropy` is the arithmetic, `budget` the members of a group that may become branches, and
`brancher` applies both to one rollout.
"""
