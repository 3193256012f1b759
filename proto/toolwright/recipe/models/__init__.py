"""Models of the shared tables, their base, and the forms of single values."""
