"""SE-Search: an agent that searches, takes notes and answers."""
