"""The load: `workloads` has the calls, `fleet` the sessions, and `loops` the times of calls.
`servers` starts service and `floor`. `verltool` has the load tests of VerlTool's server.
"""
