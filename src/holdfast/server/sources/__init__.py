"""The sources of runs: chats and agents."""
