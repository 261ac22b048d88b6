"""What is known of the upstreams that speak OpenAI's dialect, as data: their addresses, and their differences.

Nothing here was tried against the real services: each fact is from its service's documentation, or from what its users
and maintainers report, and `tests/contract/test_profiles.py` plays the shapes that follow from it. llama-server is the
exception: the embedded model is the same code.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

ProfileName = Literal["openai", "azure", "openrouter", "groq", "deepseek", "ollama", "llamacpp", "lmstudio", "vllm"]


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """How one kind of upstream behaves. The defaults are for one of which nothing is known."""

    base_url: str = ""
    key_env: str = ""
    """The variable in which its own tools look for the key."""
    think: bool = True
    """Some of its models put their reasoning into the text, between `<think>` and `</think>`."""
    reasoning: Literal["reasoning", "reasoning_content", ""] = ""
    """The field in which it sends reasoning apart. Both are always read; this is for people."""
    wants_reasoning: bool = False
    """Refuses an assistant's message with tool calls that does not bring back the reasoning that led to them."""
    key_header: str = ""
    """The header of the key. Empty: `Authorization`."""
    path: str = "/chat/completions"
    """What follows the base URL. `{model}` stands for the model's name."""
    query: dict[str, str] = {}
    """Parameters in the URL of each request."""
    usage: bool = True
    """Takes `stream_options`, and counts the tokens where they ask for it."""
    tools: bool = True
    """Its models can call tools, or those that cannot say so themselves."""
    alternate: bool = False
    """Refuses neighbouring messages of one role and a late system message, or some of its models do."""
    developer: bool = False
    """Knows the role `developer`. For all others it is `system`."""
    prefills: bool = False
    """Goes on with the assistant's own message if that is the last."""
    prefill_params: dict[str, Any] = {}
    """What a request must say beside the messages so that it does."""
    prefill_mark: dict[str, Any] = {}
    """What that last message must say of itself."""
    attaches: bool = False
    """Writes an answer that has a name to its end without a client, tells it again, and drops it when told to."""


UNKNOWN = Profile()

PROFILES: dict[ProfileName, Profile] = {
    # Chat completions show no reasoning at all, so a `<think>` at the start of an answer is the answer's own.
    # An assistant's message that comes last is answered, not gone on with.
    "openai": Profile(base_url="https://api.openai.com/v1", key_env="OPENAI_API_KEY", think=False, developer=True),
    # Documented: the name of a deployment stands in the path, the version of the API in the query, and the key in
    # `api-key`. There is no list of deployments. The address is that of the resource, so it has to be set.
    "azure": Profile(
        think=False,
        developer=True,
        key_header="api-key",
        path="/openai/deployments/{model}/chat/completions",
        query={"api-version": "2024-10-21"},
    ),
    # Documented: `reasoning` in each delta, and comments (`: OPENROUTER PROCESSING`) while a model is silent. Whether
    # it goes on with a last message is up to the model behind it: newer ones refuse, so it is off until it is set.
    "openrouter": Profile(base_url="https://openrouter.ai/api/v1", key_env="OPENROUTER_API_KEY", reasoning="reasoning"),
    # Documented: reasoning is `<think>` in the text or in a field, by `reasoning_format` and the model; usage comes in
    # `x_groq` of the last chunk, asked for or not. Prefilling is documented for its text models as a way to shape an
    # answer, not to go on with one, and reasoning models are left open: off until it is set.
    "groq": Profile(base_url="https://api.groq.com/openai/v1", key_env="GROQ_API_KEY", reasoning="reasoning"),
    # Documented: prefixes only under https://api.deepseek.com/beta, with `prefix` on the last message. Reported:
    # deepseek-reasoner answers 400 to successive messages of one role. Documented: in the thinking mode, which is on
    # unless it is turned off, the `reasoning_content` of messages with tool calls comes back in all later requests, or
    # the answer is 400. Reported: an empty one is taken.
    "deepseek": Profile(
        base_url="https://api.deepseek.com/v1",
        key_env="DEEPSEEK_API_KEY",
        think=False,
        reasoning="reasoning_content",
        wants_reasoning=True,
        alternate=True,
        prefill_mark={"prefix": True},
    ),
    # Documented: `stream_options` is taken; no key is needed. Reported: thinking is sent as `reasoning`; older versions
    # and models without a thinking template leave `<think>` in the text.
    "ollama": Profile(base_url="http://127.0.0.1:11434/v1", reasoning="reasoning", prefills=True),
    # Documented: an assistant's message that comes last is gone on with unless --no-prefill-assistant is given, and two
    # of them are refused. The model's own template may insist on turns. `--reasoning-format none` leaves `<think>`.
    # `X-Conversation-Id` names an answer; a version that does not know it stops when its client leaves, as ever.
    "llamacpp": Profile(
        base_url="http://127.0.0.1:8080/v1",
        reasoning="reasoning_content",
        alternate=True,
        prefills=True,
        attaches=True,
    ),
    # Documented: reasoning stays in the text unless a setting of the developer page puts it into `reasoning_content`.
    # Older versions sent no usage with a stream. Templates are the models' own, and may insist on turns.
    "lmstudio": Profile(base_url="http://127.0.0.1:1234/v1", reasoning="reasoning_content", alternate=True),
    # Documented: `reasoning` (before 0.11 `reasoning_content`) with --reasoning-parser, else `<think>` in the text; the
    # last message is gone on with only if the request says so. Reported: 400 where the model's template wants turns.
    "vllm": Profile(
        base_url="http://127.0.0.1:8000/v1",
        reasoning="reasoning",
        alternate=True,
        prefills=True,
        prefill_params={"continue_final_message": True, "add_generation_prompt": False},
    ),
}


def profile_of(name: ProfileName | None) -> Profile:
    """Return what is known of an upstream; with no name, what holds of any."""
    return UNKNOWN if name is None else PROFILES[name]
