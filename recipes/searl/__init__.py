"""SEARL: an agent that makes tools, and a memory that keeps them."""
