"""The processes of workers: on this machine, or on the nodes of a Ray cluster."""
