"""The machine that a run is on: processes, their answers and memory, versions, SGLang."""
