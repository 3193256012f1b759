"""Published sets of software engineering, each row as a verification of the tool `swe`.

columns.py     lists and texts of a row, and what all sets share
r2e.py, swe_bench.py, pro.py, nemotron.py, harbor.py    a row of one set -> a verification; pure
writing.py     a verification -> its folder

A folder holds what docs/tools/shipped/swe.md describes: `verification.toml`, files, a test patch.
Rows stay with the operator: a task's metadata name a verification, and hold nothing of it.
"""
