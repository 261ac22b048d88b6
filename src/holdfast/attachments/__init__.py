"""Files of messages: what they are, and how a model reads them."""
