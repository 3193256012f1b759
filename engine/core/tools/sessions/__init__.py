"""Sessions on one tool service: opened, found again, forked, leased, closed."""
