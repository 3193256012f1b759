"""Names in a verification's folder, which `tasks verifications` writes and the swe tool reads."""

SETTINGS = "verification.toml"
"""The command, its report, and the statuses that solve the task."""
PATCH = "tests.patch"
"""The hidden tests as a patch of the repository; may be absent."""
FILES = "files"
"""Folder of files that are laid over the submission; may be absent."""
