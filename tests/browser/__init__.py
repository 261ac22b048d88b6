"""The browser UI in a real Chromium, at the real server, with U as its upstream."""
