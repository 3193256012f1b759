"""One trajectory: its log of events, the state they fold to, and the loop that acts on it."""
