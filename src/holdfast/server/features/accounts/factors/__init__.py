"""Second factors: codes of an authenticator app, recovery codes and passkeys."""
