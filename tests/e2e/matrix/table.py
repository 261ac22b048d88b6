"""The matrix of clients: every row of docs/clients/README.md."""

from tests.e2e.matrix.client import ASKS_AFTER_TEXT, CELLS, MATRIX, Client, Test

CHAT, RESPONSES, MESSAGES, OLLAMA = "chat completions", "responses", "messages", "Ollama"
BASIC = "stream usage leaving failures"
ALL = f"{BASIC} tools structured pictures reasoning"
SDKS, FRAMEWORKS, AGENTS, EXTRACTION = "python/sdks", "python/frameworks", "python/agents", "python/extraction"

NODE = "matrix-node"
E2E = "tests/e2e"

UNREAD = "The client does not read reasoning on this API."
STAYS_OPEN = "The connection stays open when the program has left the stream: the client does not close it."


def tests(file: str, **cells: str) -> dict[str, Test]:
    """Cells that tests of one file show, by the names of these tests."""
    return {cell: Test(f"{E2E}/{file}", name) for cell, name in cells.items()}


def coding_agent(
    agent: str, name: str, package: str, api: str, environment: str = "coding_agents", **more: str
) -> Client:
    """A program, by the tests that all of them go through. `agent` is its name there."""
    file = "test_coding_agents.py"
    known = tests(
        file,
        tools="test_a_coding_agent_calls_its_tool_and_answers",
        leaving="test_interrupting_a_coding_agent_stops_the_model",
        failures="test_a_coding_agent_reports_a_response_that_breaks_off",
    )
    lacks = more.get("lacks", "")
    return Client(
        name,
        package,
        api,
        environment,
        lacks=lacks,
        shown={cell: test for cell, test in known.items() if cell != lacks},
        asks=ASKS_AFTER_TEXT[agent],
    )


CLIENTS = [
    Client(
        *("openai (Python)", "openai", CHAT, "dev", f"{SDKS}/openai.py", "", ALL),
        shown=tests("test_openai_python.py", resume="test_a_background_run_goes_on_and_is_fetched_by_its_id"),
    ),
    Client(
        *("openai (Python)", "openai", RESPONSES, "dev", f"{SDKS}/openai_responses.py", "", ALL),
        shown=tests("test_openai_python_responses.py", resume="test_a_stream_is_resumed_after_any_event"),
    ),
    Client(
        *("openai (Python)", "openai", "completions", "dev"),
        lacks="tools structured pictures reasoning",
        shown=tests(
            "test_more_endpoints.py",
            stream="test_a_stream_of_a_completion_is_read_chunk_by_chunk",
            usage="test_a_prompt_reaches_the_upstream_as_it_is_and_is_completed",
            leaving="test_leaving_a_completion_closes_the_upstream",
            failures="test_a_completion_that_breaks_off_raises_and_is_run_once",
        ),
        asks=1,
    ),
    Client("anthropic (Python)", "anthropic", MESSAGES, "dev", f"{SDKS}/anthropic.py", "", ALL),
    Client("pydantic-ai", "pydantic-ai-slim", CHAT, "dev", f"{FRAMEWORKS}/pydantic_ai.py", "chat", ALL),
    Client("pydantic-ai", "pydantic-ai-slim", RESPONSES, "dev", f"{FRAMEWORKS}/pydantic_ai.py", "responses", ALL),
    Client("pydantic-ai", "pydantic-ai-slim", MESSAGES, "dev", f"{FRAMEWORKS}/pydantic_ai.py", "anthropic", ALL),
    Client("openai-agents (Python)", "openai-agents", CHAT, "dev", f"{FRAMEWORKS}/openai_agents.py", "chat", ALL),
    Client(
        "openai-agents (Python)", "openai-agents", RESPONSES, "dev", f"{FRAMEWORKS}/openai_agents.py", "responses", ALL
    ),
    Client(
        *(
            "LangChain and LangGraph (Python)",
            "langchain-openai",
            CHAT,
            "langchain",
            f"{FRAMEWORKS}/langchain.py",
            "chat",
            ALL,
        ),
        fails={"reasoning": UNREAD},
    ),
    Client(
        "LangChain and LangGraph (Python)",
        "langchain-openai",
        RESPONSES,
        "langchain",
        f"{FRAMEWORKS}/langchain.py",
        "responses",
        ALL,
    ),
    Client(
        "LangChain and LangGraph (Python)",
        "langchain-anthropic",
        MESSAGES,
        "langchain",
        f"{FRAMEWORKS}/langchain.py",
        "anthropic",
        ALL,
    ),
    Client(
        "LangChain and LangGraph (Python)",
        "langchain-ollama",
        OLLAMA,
        "langchain",
        f"{FRAMEWORKS}/langchain.py",
        "ollama",
        ALL,
    ),
    Client("LiteLLM", "litellm", CHAT, "litellm", f"{SDKS}/litellm.py", "openai", ALL),
    Client("LiteLLM (hosted_vllm)", "litellm", CHAT, "litellm", f"{SDKS}/litellm.py", "hosted_vllm", ALL),
    Client("LiteLLM", "litellm", MESSAGES, "litellm", f"{SDKS}/litellm.py", "anthropic", ALL),
    Client("LiteLLM", "litellm", OLLAMA, "litellm", f"{SDKS}/litellm.py", "ollama_chat", ALL),
    Client(
        "LlamaIndex", "llama-index-llms-openai-like", CHAT, "llama-index", f"{FRAMEWORKS}/llama_index.py", "chat", ALL
    ),
    Client(
        "LlamaIndex", "llama-index-llms-ollama", OLLAMA, "llama-index", f"{FRAMEWORKS}/llama_index.py", "ollama", ALL
    ),
    Client(
        "Instructor (tools)",
        "instructor",
        CHAT,
        "instructor",
        f"{EXTRACTION}/instructor.py",
        "tools",
        "structured failures",
    ),
    Client(
        "Instructor (JSON schema)",
        "instructor",
        CHAT,
        "instructor",
        f"{EXTRACTION}/instructor.py",
        "schema",
        "structured failures",
    ),
    Client(
        "Instructor",
        "instructor",
        MESSAGES,
        "instructor",
        f"{EXTRACTION}/instructor.py",
        "anthropic",
        "structured failures",
    ),
    Client("DSPy", "dspy", CHAT, "dspy", f"{FRAMEWORKS}/dspy.py", "", "structured usage failures"),
    Client(
        *(
            "smolagents",
            "smolagents",
            CHAT,
            "smolagents",
            f"{AGENTS}/smolagents.py",
            "",
            f"{BASIC} tools structured pictures",
        ),
        fails={"leaving": STAYS_OPEN},
    ),
    Client(
        *("AutoGen", "autogen-ext", CHAT, "autogen", f"{AGENTS}/autogen.py", "", ALL),
        fails={
            "leaving": STAYS_OPEN,
            "reasoning": "The client puts reasoning into the text, between `<think>` and `</think>`.",
        },
    ),
    Client(
        *(
            "Microsoft Agent Framework",
            "agent-framework-openai",
            CHAT,
            "agent-framework",
            f"{AGENTS}/agent_framework.py",
            "chat",
            ALL,
        ),
        fails={"reasoning": UNREAD},
    ),
    Client(
        "Microsoft Agent Framework",
        "agent-framework-openai",
        RESPONSES,
        "agent-framework",
        f"{AGENTS}/agent_framework.py",
        "responses",
        ALL,
    ),
    Client("Agno", "agno", CHAT, "agno", f"{AGENTS}/agno.py", "chat", ALL),
    Client("Agno", "agno", RESPONSES, "agno", f"{AGENTS}/agno.py", "responses", ALL),
    Client("Agno", "agno", MESSAGES, "agno", f"{AGENTS}/agno.py", "anthropic", ALL),
    Client(
        *("Haystack", "haystack-ai", CHAT, "haystack", f"{FRAMEWORKS}/haystack.py", "chat", ALL),
        fails={"reasoning": UNREAD},
    ),
    Client("Haystack", "haystack-ai", RESPONSES, "haystack", f"{FRAMEWORKS}/haystack.py", "responses", ALL),
    Client(
        "Semantic Kernel",
        "semantic-kernel",
        CHAT,
        "semantic-kernel",
        f"{AGENTS}/semantic_kernel.py",
        "",
        f"{BASIC} tools structured pictures",
    ),
    Client(
        *(
            "Magentic",
            "magentic",
            CHAT,
            "magentic",
            f"{EXTRACTION}/magentic.py",
            "",
            f"{BASIC} tools structured pictures",
        ),
        fails={"tools": "`prompt_chain` makes the first of two calls only."},
    ),
    Client(
        "Outlines", "outlines", CHAT, "outlines", f"{EXTRACTION}/outlines.py", "", "stream leaving failures structured"
    ),
    Client("Guidance", "guidance", CHAT, "guidance", f"{EXTRACTION}/guidance.py", "", "failures structured"),
    Client("llm", "llm", CHAT, "llm", f"{SDKS}/llm.py", "", f"{BASIC} tools structured pictures"),
    Client("aisuite", "aisuite", CHAT, "aisuite", f"{SDKS}/aisuite.py", "", "usage failures tools pictures"),
    Client("any-llm", "any-llm-sdk", CHAT, "any-llm", f"{SDKS}/any_llm.py", "", ALL),
    Client("Strands Agents", "strands-agents", CHAT, "strands", f"{AGENTS}/strands.py", "openai", ALL, whole=False),
    Client(
        "Strands Agents", "strands-agents", MESSAGES, "strands", f"{AGENTS}/strands.py", "anthropic", ALL, whole=False
    ),
    Client("ollama (Python)", "ollama", OLLAMA, "ollama", f"{SDKS}/ollama.py", "", ALL),
    Client("Portkey", "portkey-ai", CHAT, "portkey", f"{SDKS}/portkey.py", "", f"{BASIC} pictures"),
    Client(
        "Google ADK (LiteLLM)",
        "google-adk",
        CHAT,
        "google-adk",
        f"{AGENTS}/google_adk.py",
        "",
        f"{BASIC} tools structured pictures",
    ),
    Client("CrewAI", "crewai", CHAT, "crewai", f"{AGENTS}/crewai.py", "", "usage failures tools structured"),
    Client(
        "Browser Use",
        "browser-use",
        CHAT,
        "browser-use",
        f"{AGENTS}/browser_use.py",
        "",
        "usage failures structured pictures",
    ),
    Client(
        *("openai (Node)", "openai", CHAT, NODE, "node/openai.mjs", "chat", ALL),
        shown=tests("node/openai.test.mjs", resume="a background run is fetched by its id"),
    ),
    Client(
        *("openai (Node)", "openai", RESPONSES, NODE, "node/openai.mjs", "responses", ALL),
        shown=tests(
            "node/responses.test.mjs", resume="a response is resumed after any event, created in the background or not"
        ),
    ),
    Client("@anthropic-ai/sdk", "@anthropic-ai/sdk", MESSAGES, NODE, "node/anthropic.mjs", "", ALL),
    Client(
        *("AI SDK (@ai-sdk/openai)", "@ai-sdk/openai", CHAT, NODE, "node/ai_sdk.mjs", "chat", ALL),
        fails={"reasoning": UNREAD},
    ),
    Client("AI SDK (@ai-sdk/openai)", "@ai-sdk/openai", RESPONSES, NODE, "node/ai_sdk.mjs", "responses", ALL),
    Client(
        "AI SDK (@ai-sdk/openai-compatible)",
        "@ai-sdk/openai-compatible",
        CHAT,
        NODE,
        "node/ai_sdk.mjs",
        "compatible",
        ALL,
    ),
    Client("AI SDK (@ai-sdk/anthropic)", "@ai-sdk/anthropic", MESSAGES, NODE, "node/ai_sdk.mjs", "anthropic", ALL),
    Client(
        *("AI SDK (ollama-ai-provider-v2)", "ollama-ai-provider-v2", OLLAMA, NODE, "node/ai_sdk.mjs", "ollama", ALL),
        fails={"pictures": "The provider raises a `TypeError` before it sends the picture."},
    ),
    Client(
        *("LangChain (JavaScript)", "@langchain/openai", CHAT, NODE, "node/langchain.mjs", "chat", ALL),
        fails={"reasoning": UNREAD},
    ),
    Client(
        *("LangChain (JavaScript)", "@langchain/openai", RESPONSES, NODE, "node/langchain.mjs", "responses", ALL),
        fails={"reasoning": UNREAD},
    ),
    Client(
        *("LangChain (JavaScript)", "@langchain/anthropic", MESSAGES, NODE, "node/langchain.mjs", "anthropic", ALL),
    ),
    Client(
        *("LangChain (JavaScript)", "@langchain/ollama", OLLAMA, NODE, "node/langchain.mjs", "ollama", ALL),
        fails={"leaving": STAYS_OPEN},
    ),
    Client(
        "@openai/agents",
        "@openai/agents",
        CHAT,
        NODE,
        "node/openai_agents.mjs",
        "chat",
        f"{BASIC} tools structured pictures",
    ),
    Client(
        "@openai/agents",
        "@openai/agents",
        RESPONSES,
        NODE,
        "node/openai_agents.mjs",
        "responses",
        f"{BASIC} tools structured pictures",
    ),
    Client(
        *("Mastra", "@mastra/core", CHAT, NODE, "node/mastra.mjs", "", ALL),
    ),
    Client("ollama (Node)", "ollama", OLLAMA, NODE, "node/ollama.mjs", "", ALL),
    Client(
        *("useChat (@ai-sdk/react)", "@ai-sdk/react", "AI SDK", "node"),
        shown=tests(
            "node/ai_sdk.test.mjs",
            stream="an answer is a message, and the chat is ready again",
            tools="tools of the page are called, and their results go back",
            reasoning="reasoning is a part of its own, and done",
            failures="what did not complete does not look like success",
            resume="a page that was loaded again in mid-stream has the whole message",
        ),
        asks=1,
    ),
    Client(
        *("@ag-ui/client", "@ag-ui/client", "AG-UI", "node"),
        shown=tests(
            "node/ag-ui.test.mjs",
            stream="ag-ui: an answer and its reasoning become messages",
            tools="ag-ui: a frontend tool is called, and its result goes on in the thread",
            reasoning="ag-ui: an answer and its reasoning become messages",
            leaving="ag-ui: an abort stops the run",
            failures="ag-ui: what failed or was cut off is an error, with its text kept",
            resume="ag-ui: a page that was loaded again connects to the run and sees all of it",
        ),
        asks=1,
    ),
    coding_agent("codex", "Codex", "@openai/codex", RESPONSES),
    coding_agent("codex over a WebSocket", "Codex (`supports_websockets`)", "@openai/codex", f"{RESPONSES}, WebSocket"),
    coding_agent("claude-code", "Claude Code", "@anthropic-ai/claude-code", MESSAGES),
    coding_agent("opencode", "opencode", "opencode-ai", CHAT),
    coding_agent("cline", "cline", "cline", CHAT),
    coding_agent("continue", "Continue", "@continuedev/cli", CHAT),
    coding_agent("aider", "aider", "aider-chat", CHAT, "aider", lacks="tools"),
]
__all__ = ["CELLS", "CLIENTS", "MATRIX", "Client", "Test"]
