"""Which tools recordings called, for `engine analyze` (MTR, appendix E).

`sources` reads recordings, `words` and `schema` classify tools, `tally` counts, `power_law` fits,
`findings` makes the numbers, and `table` and `page` show them.
"""
