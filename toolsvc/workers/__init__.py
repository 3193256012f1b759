"""Several processes behind one address.

`supervisor` starts the workers, replaces those that die and tells all of them who lives; it holds
no session and speaks no gRPC. `addresses` holds their ports. `worker` is one of the processes.
`placement` says which worker a session belongs to, `routing` sends requests there. `messages` are
what supervisor and worker say to each other, `restarts` how soon a dead worker is replaced.

Invariants
- At any time a session is open in at most one worker, and every worker names the same one.
- A worker that dies takes its own sessions with it and no others.
- No worker outlives its supervisor.
"""
