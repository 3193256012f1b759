"""One trajectory: its task, prompt, turns, tool calls and rewards. No journal, no learner."""
