"""An answer against the right ones. How sure a score is says `toolwright.statistics`.

Answers are read by `toolwright.reading.answers` and `toolwright.reading.expressions`.

- extract.py: finds the final answer in a policy's text
- answer_judge.py: words or mathematics, by a recipe's choice or by the row's task
- words.py: open questions: exact match, cover match, F1
- numbers.py: answers as numbers, else as texts or words
- symbols.py: mathematics: expressions, compared in separate processes (symbols_worker.py)
- choices.py: multiple choice
- tables.py: the rows of a query
- gold_rows.py: the rows of the right query, found once and kept as the answer
- opinion.py: the judgement of a language model
- outcomes.py: the rewards of right and wrong answers in VerlTool's tasks
"""
