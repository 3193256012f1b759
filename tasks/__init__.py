"""Questions, and whether an answer is right. Imported by the code of recipes; imports no process.

judging/  an answer against the right ones: words, numbers, choices, tables, a model's opinion
"""
