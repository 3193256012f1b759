"""A trajectory's history: events, the state they fold to, the record they become."""
