"""What the engine must not forget, in one SQLite file."""
