"""The import of chats that other programs have exported: ChatGPT, Open WebUI, LibreChat."""
