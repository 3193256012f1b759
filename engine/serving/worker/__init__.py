"""A worker of `engine serve --workers`: it rolls out and scores what the coordinator assigns."""
