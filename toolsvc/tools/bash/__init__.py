"""`bash`: a shell and file tools on one tree of files, for each session its own.

`bash_tool` speaks with the policy; `action` is how it may ask, `arguments` what it may ask for,
`tree` which files it finds. What runs inside the sandbox is `toolsvc.sandbox.jailed.drivers.shell`.

One tool and not two: shell and file tools change the same files, so their calls have to come one
after the other, in the order of asking, which a host promises only of one tool's.
"""
