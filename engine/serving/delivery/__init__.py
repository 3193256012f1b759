"""From the journal to the learner: leases of groups, their freshness, and the claim on the run."""
