"""What the upstream plays, by the names of its models."""

ENDLESS = "paced:1000000:50"
LIVELY = "paced:1000000:5"
"""Five tokens a second, so that a thousand of them leave room for what is measured beside them."""
SHORT = "paced:256:50"
"""An answer of usual length, for five seconds."""
HEARTBEAT = "idle:1000000:5000"
QUICK = "paced:100000000:1000"
LONG = "flat:1000000"
WORDS = "words:256"
"""The text of a language: the search index takes longer for it than for one number again and again."""
SIZES = [1_000, 10_000, 100_000, 1_000_000]
MODELS = [
    *(
        "bench",
        "flat:8",
        "flat:100",
        "flat:256",
        WORDS,
        "flat:2000",
        ENDLESS,
        SHORT,
        LIVELY,
        HEARTBEAT,
        QUICK,
        "json",
        "silent",
        "mute",
    ),
    *(f"flat:{size}" for size in SIZES),
]
