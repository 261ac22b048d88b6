"""How people file their chats: folders, tags, the archive, and several chats at once."""
