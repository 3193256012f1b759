"""What happened on a trajectory: events, the state they fold to, the record they become."""
