"""`swe`: a repository in a box of its own for each trajectory, and a verification out of its reach.

`swe_tool` is the tool. `tasks` reads the task from the metadata, and `checkout` makes the
repository's tree; one of the `boxes` is started with it. `action` and `arguments` understand a
call, which `editor` and the box carry out. At last `verifying` compares the tree with that of a
second, fresh box and runs the tests there. `options` are the operator's.
"""
