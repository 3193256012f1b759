"""The web for a policy: a search API, and the pages that it finds."""
