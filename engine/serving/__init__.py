"""`engine serve`: admission, journal, delivery, publishing, evaluation between steps, status."""
