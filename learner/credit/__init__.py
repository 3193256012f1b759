"""Credit assignment: from the record's rewards to one advantage a token.

`members` reads the record, `episode` compares trajectories, `turns` compares turns, `branches`
averages over shared tokens, `assign` adds everything up. The formulas are in `toolwright.credit`
and `learner.maths`.
"""
