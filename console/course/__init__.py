"""The course of a run: what is started, awaited and stopped, in which order."""
