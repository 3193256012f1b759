"""VerlTool's mathematics."""
