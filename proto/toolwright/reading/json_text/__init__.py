"""JSON as a policy writes it: its bounds, and whether an unfinished text begins an object."""
