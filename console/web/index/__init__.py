"""The table of a run's trajectories: read from its files, kept in SQLite, asked by the pages."""
