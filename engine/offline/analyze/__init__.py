"""What tools a recording called and what they are, for `engine analyze` (MTR, appendix E).

`sources` reads recordings, `words` and `schema` say what a tool is, `tally` counts, `law` fits,
`findings` makes the numbers, `table` and `page` show them."""
