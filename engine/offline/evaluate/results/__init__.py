"""What an evaluation comes to: `rows` reads what is on disk, `scores` sums it up, `figures` is
results.json, `table` and `page` show it, `beside` lays it beside a paper's table, and `compare`
lays two evaluations beside each other."""
