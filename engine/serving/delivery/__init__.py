"""From the journal to the learner: leases of groups, their freshness, whose the run is."""
