"""Sessions and their calls, for any tool and any protocol.

`host` leases and forks sessions and begins calls. `sessions` opens, finds and closes them, and
`open_session` is the state of one. `calls` takes a call from request to record: `turnstile` and
`admission` decide when it starts, `ledger` that it starts once, `observation` bounds its answer.
`blobs` and `task_blobs` hold what is too large for a message. `watch` is the interface of metrics
and traces.
"""
