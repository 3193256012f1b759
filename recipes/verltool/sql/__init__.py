"""VerlTool's SQL task."""
