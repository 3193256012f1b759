"""Sessions and their calls, whatever the tool is and however the service is spoken to.

`host` leases and forks sessions and begins calls; `sessions` opens, finds and closes them, and
`open_session` is what is kept of one. `calls` is a call's way from request to record: `turnstile`
says when it may start, `ledger` that it starts once, `observation` brings its answer into bounds.
`blobs` and `task_blobs` hold what is too large for a message, `watch` tells whoever counts.
"""
