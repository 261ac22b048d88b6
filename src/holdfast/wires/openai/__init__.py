"""OpenAI's chat completions and Responses API for clients."""
