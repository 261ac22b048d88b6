"""The events of a run: checks, separation of reasoning and text, the numbered log, the settlement. Pure."""
