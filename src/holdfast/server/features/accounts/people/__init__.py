"""People: their accounts and groups, their passwords, and their sign-ins."""
