"""Sessions on one tool service: opened, adopted, forked, leased, closed."""
