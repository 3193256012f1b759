"""The way of one trajectory: its log of events, what they fold to, and the loop that acts on it."""
