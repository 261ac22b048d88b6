"""OpenAI's Responses API: responses, their chains, conversations, and the WebSocket mode."""
