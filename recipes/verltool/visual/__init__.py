"""VerlTool's visual reasoning."""
