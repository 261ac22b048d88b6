"""Agents and their approvals."""
