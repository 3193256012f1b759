"""The load: `workloads` says what is called, `fleet` holds the sessions and calls, `loops` decides
when. `servers` are what is called, the bare `floor` among them; `usage` meters the processes.
`verltool` has the loads that VerlTool's server was tested with.
"""
