"""An answer against the right ones. How sure a score is says `toolwright.statistics`.

Answers are read by `toolwright.reading.answers` and `toolwright.reading.expressions`.

extract.py    the final answer in what a policy wrote
answer_judge.py  words or mathematics, by a recipe's choice or by the row's task
words.py      of open questions: exact match, cover match, F1
numbers.py    as numbers, else as texts or words
symbols.py    of mathematics: as expressions, in processes of their own (symbols_worker.py)
choices.py    one of several
tables.py     the rows of a query
gold_rows.py  the rows of the right query, found once and kept as the answer
opinion.py    what a language model says of it
outcomes.py   what right and wrong are worth in VerlTool's tasks
"""
