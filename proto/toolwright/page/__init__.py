"""Pages of HTML and their charts: one style, nothing fetched from anywhere."""
