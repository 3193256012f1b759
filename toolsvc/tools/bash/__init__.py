"""`bash`: a shell and file tools on one tree of files, for each session its own.

`bash_tool` is the tool, `request` defines the policy's requests, and `tree` makes the files of a
new session. `toolsvc.sandbox.jailed.drivers.shell` runs inside the sandbox.

It is one tool because shell and file tools change the same files. Their calls must run one after
the other, in the order of asking, and a host promises that order only for calls of one tool.
"""
