"""The commands of `tasks`, a file each."""
