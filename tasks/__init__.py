"""Questions, and whether an answer is right. Imported by the code of recipes; imports no process.

sets/     published sets, each to one record (record.py); sources.py: as a recipe's task source
worlds/   small worlds that are made here: a corpus, and questions that it answers
judging/  an answer against the right ones: words, numbers, choices, tables, a model's opinion
commands/ the command `tasks`
verifications/ published rows as hidden tests of the tool `swe`
"""
