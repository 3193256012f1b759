"""`toolwright view --web`: the trajectories of runs as pages in a browser.

The way of a row: `index/` reads what a run leaves and keeps it in SQLite, `telling/` makes one
trajectory readable, `app.py` answers questions about both behind `door.py`, and `pages/` shows the
answers. Nothing here writes to a run folder.
"""
