"""VerlTool's software engineering agent."""
