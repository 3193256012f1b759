"""`bench tools`: the cost of a tool call under load, beside the cost of gRPC alone.

`command` reads the options into a `plan`, `run` starts the servers, `sweep` carries out the plan,
and `trial` puts one `load` on service and floor in turn. `reading` makes rows and pages of the
windows.
"""
