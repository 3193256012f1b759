"""`bench retokenisation`: how encoding a conversation's whole text again changes its ids.

Engine and learner never encode a text again. They append the ids of the sampler and the ids of each
observation (arXiv:2509.01055, 3.3). This instrument encodes recorded trajectories again, and counts
the changes (appendix E of the paper).
"""
