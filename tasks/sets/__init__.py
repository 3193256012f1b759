"""Published sets of questions, each to one record.

training.py, evaluation.py  what is published where and how it looks, as data
layout.py                   a row by its layout -> a record; reshaping.py: rows that need more
rows.py                     files -> rows
loading.py                  a set's name and its files -> records
"""

from tasks.sets.loading import SETS, Reading

__all__ = ["SETS", "Reading"]
