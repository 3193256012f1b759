"""The command `toolwright`: starts a recipe's processes, reads run folders, imports none of them.

What a user types is in `commands/`. A run's way through the folders: `course/` (what is started, in
which order) on `machine/` (processes and what they take), `watch/` (what is seen meanwhile),
`record/` (what the run folder holds), `report/` (what is looked at afterwards), `track/` (where its
curves go besides). `doctor/` looks at the machine before; `redact` keeps secrets in.
"""
