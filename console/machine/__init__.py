"""The machine that a run is on: its processes, whether they answer, what they take, versions."""
