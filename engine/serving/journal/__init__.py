"""The engine's durable state, in one SQLite file."""
