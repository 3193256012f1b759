"""What a ladder came to: numbers of its runs, means and differences over seeds, table and page.

files of the runs -> measures -> statistics -> figures (ablate.json) -> table, page
"""
