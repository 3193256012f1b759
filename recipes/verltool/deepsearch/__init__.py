"""VerlTool's deep search."""
