"""A session on one tool service, and what holds many: the open queue, the closer, the leases."""
