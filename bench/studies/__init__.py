"""Studies of the four systems: each makes its runs, measures them, and draws its page's picture.

    types.py        what a study is
    training.py     the runs of a recipe, one a seed, which go on where they ended
    recordings.py   the groups of a run, by the stage of training
    step_credit.py  does the step advantage find the right tool? (SEARL)
    counterfactual_rewards.py  what does a reading of the reward change? (SE-Search)
    policy_or_memory.py  what holds what was learnt? (SEARL)
    cheats.py       what is a cheat paid? `cheating.py` plays one under every verdict
    tables.py, drawing.py  a page's table and picture
    command.py      `bench study`

A study's figures lie in bench/results/NAME.json. Table and picture of its page, docs/results/,
are made from that file alone.
"""
