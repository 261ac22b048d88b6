"""Files that are uploaded before the message that they are for."""
