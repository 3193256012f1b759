"""What encoding a conversation's whole text again would have done to a run's trajectories.

Engine and learner never do that: ids that the sampler returned, and those of each observation
encoded by itself, are appended and stay (arXiv:2509.01055, 3.3). Here it is done after the fact, to
recorded trajectories, to tell how much would have been another (appendix E of the paper).
"""
