"""Stand-ins for what runs containers, for machines that have none."""
