"""The command `toolwright`: starts a recipe's processes, reads run folders, imports none of them.

`commands/` has the commands. A run goes through these folders: `course/` starts processes in order,
on `machine/`. `watch/` shows the run, and `record/` reads its folder. `report/` makes the pages
afterwards, and `track/` sends curves to trackers. `doctor/` checks the machine before; `redact`
removes secrets.
"""
