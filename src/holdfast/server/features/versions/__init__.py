"""Other versions of answers: forks from any place in one, edits by a person, and chats without a message."""
