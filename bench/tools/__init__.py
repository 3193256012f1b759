"""`bench tools`: what a tool call costs, under load, beside what gRPC alone costs.

`command` reads the options into a `plan`, `run` starts what is measured, `sweep` goes through the
plan, and `trial` puts one `load` on the service and on the bare floor in turn. `reading` makes rows
and pages of what came of it.
"""
