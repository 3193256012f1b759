"""`swe`: a repository in a box of its own for each trajectory, and a verification out of its reach.

The way of a trajectory: `tasks` reads what the metadata name and `checkout` makes the repository's
tree; `starts` has a runner (`local`, `cli`, `kubernetes`; what they are is `box`) start a box;
`action` and `arguments` understand a call, which `editor` and the box carry out. At last
`verification` compares the `tree` with that of a second, fresh box, looks for `tampering`, lays
down pytest's `settings`, runs the tests there and reads their `report`.
"""
