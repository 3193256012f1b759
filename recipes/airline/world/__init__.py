"""The demonstration: scripted agents of the airline, one that solves and five that do damage."""
