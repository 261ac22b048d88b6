"""What people have seen, and how they are told that something has happened: marks, notifications, web push."""
