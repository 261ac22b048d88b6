"""Authentication and rights: API keys, wrong keys, and who may use which agent."""
