"""What a store keeps about people: the audit log, and all that one owner has."""
