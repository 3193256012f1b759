"""Load generation, faults and the scripted sampler: the project's own measuring instruments."""
