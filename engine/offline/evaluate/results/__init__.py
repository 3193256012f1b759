"""Results of an evaluation, from the rows on disk.

`rows` reads them, `scores` sums them up and `figures` makes results.json. `table` and `page` show
it, `paper_tables` compares it with a paper, and `compare` compares two evaluations.
"""
