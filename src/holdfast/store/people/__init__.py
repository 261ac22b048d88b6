"""The data of a store about people: the audit log, and all data of one owner."""
