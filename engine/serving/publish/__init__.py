"""What the learner speaks to: groups out, weights in."""
