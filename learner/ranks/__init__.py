"""What this process is among others: its device, its groups, its part of every sequence."""
