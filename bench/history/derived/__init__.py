"""What several invariants compute of a history; each module is pure."""
