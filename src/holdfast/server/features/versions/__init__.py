"""Other versions of answers: forks at any place, edits by a person, chats without a message; and votes on them."""
