"""`bench tools`: what a tool call costs, under load, beside what gRPC alone costs.

The data's way: `workloads` says what is called, `fleet` holds the sessions and calls, `loops`
decides when, `usage` meters the processes, `trial` runs the service and the bare floor in turn,
`rows` makes figures of it, `knee`, `compare`, `terminal` and `report` read the figures.
"""
