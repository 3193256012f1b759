"""One trajectory as data for a page."""
