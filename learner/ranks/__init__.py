"""This process as a rank: its device, its groups, its part of every sequence."""
