"""Profiles of the upstreams that speak OpenAI's dialect: their addresses and their differences, as data.

The profiles were not tested against the real services. Each fact is from the documentation of the service, or from
reports of users and maintainers. `tests/contract/test_profiles.py` checks them against simulated responses.
llama-server is the exception: the built-in model is the same code.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

ProfileName = Literal["openai", "azure", "openrouter", "groq", "deepseek", "ollama", "llamacpp", "lmstudio", "vllm"]


Unlisted = Literal["refuse", "pass"]
"""What becomes of a model that the upstream's list lacks: it is not found, or the upstream is asked for it."""


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """The behaviour of one kind of upstream. The defaults are for an unknown upstream."""

    base_url: str = ""
    key_env: str = ""
    """The environment variable of its own tools for the key."""
    think: bool = True
    """True if some of its models write their reasoning into the text, between `<think>` and `</think>`."""
    reasoning: Literal["reasoning", "reasoning_content", ""] = ""
    """The field in which it sends reasoning. For documentation only: both fields are always read."""
    wants_reasoning: bool = False
    """True if it refuses an assistant's message with tool calls but without the reasoning that led to them."""
    key_header: str = ""
    """The header of the key. Empty: `Authorization`."""
    path: str = "/chat/completions"
    """The path after the base URL. `{model}` is replaced by the model's name."""
    query: dict[str, str] = {}
    """Parameters in the URL of each request."""
    usage: bool = True
    """True if it accepts `stream_options`, and sends the usage if they ask for it."""
    tools: bool = True
    """True if its models can call tools, or those that cannot return an error."""
    alternate: bool = False
    """True if some of its models refuse consecutive messages of one role, or a late system message."""
    developer: bool = False
    """True if it knows the role `developer`. For all others `system` is sent."""
    prefills: bool = False
    """True if it continues the last message if that is the assistant's."""
    prefill_params: dict[str, Any] = {}
    """Parameters that make it continue the last message."""
    prefill_mark: dict[str, Any] = {}
    """Fields of the last message that make it continue that message."""
    unlisted: Unlisted = "refuse"
    """`pass` if it has models that its list lacks."""
    suffixes: bool = False
    """True if a `:suffix` after a listed name is another way to the same model."""
    is_local: bool = False
    """True if it runs on a machine of the operator: it reads its weights, and a long prompt slowly."""
    attaches: bool = False
    """True if it finishes a named answer without a client, sends it again on request, and can delete it."""


UNKNOWN = Profile()

PROFILES: dict[ProfileName, Profile] = {
    # Chat completions contain no reasoning, so a `<think>` at the start of an answer is part of the answer.
    # A last message of the assistant is answered, not continued.
    "openai": Profile(base_url="https://api.openai.com/v1", key_env="OPENAI_API_KEY", think=False, developer=True),
    # Documented: the name of a deployment is in the path, the version of the API in the query, and the key in
    # `api-key`. There is no list of deployments. The address depends on the resource, so it has to be set.
    "azure": Profile(
        think=False,
        developer=True,
        key_header="api-key",
        path="/openai/deployments/{model}/chat/completions",
        query={"api-version": "2024-10-21"},
        unlisted="pass",
    ),
    # Documented: `reasoning` in each delta, and comments (`: OPENROUTER PROCESSING`) while a model is silent. Whether
    # it continues a last message depends on the model: newer ones refuse, so it is off by default.
    # Documented: suffixes such as `:nitro` and `:floor` after the name of a model, which the list does not have.
    "openrouter": Profile(
        base_url="https://openrouter.ai/api/v1", key_env="OPENROUTER_API_KEY", reasoning="reasoning", suffixes=True
    ),
    # Documented: reasoning is `<think>` in the text or in a field, by `reasoning_format` and the model; usage comes in
    # `x_groq` of the last chunk, even if not requested. Prefilling is documented for its text models as a way to shape
    # an answer, not to continue one, and not at all for reasoning models: off by default.
    "groq": Profile(base_url="https://api.groq.com/openai/v1", key_env="GROQ_API_KEY", reasoning="reasoning"),
    # Documented: prefixes only under https://api.deepseek.com/beta, with `prefix` on the last message. Reported:
    # deepseek-reasoner answers 400 to successive messages of one role. Documented: in the thinking mode, which is on
    # by default, later requests must include the `reasoning_content` of messages with tool calls, or the answer is 400.
    # Reported: an empty one is accepted.
    "deepseek": Profile(
        base_url="https://api.deepseek.com/v1",
        key_env="DEEPSEEK_API_KEY",
        think=False,
        reasoning="reasoning_content",
        wants_reasoning=True,
        alternate=True,
        prefill_mark={"prefix": True},
    ),
    # Documented: `stream_options` is accepted; no key is needed. Reported: thinking is sent as `reasoning`; older
    # versions and models without a thinking template leave `<think>` in the text.
    "ollama": Profile(base_url="http://127.0.0.1:11434/v1", reasoning="reasoning", prefills=True, is_local=True),
    # Documented: a last message of the assistant is continued unless --no-prefill-assistant is given, and two of them
    # are refused. The model's template may require alternating turns. `--reasoning-format none` leaves `<think>`.
    # `X-Conversation-Id` names an answer; a version that does not know it stops when its client disconnects.
    "llamacpp": Profile(
        base_url="http://127.0.0.1:8080/v1",
        reasoning="reasoning_content",
        alternate=True,
        prefills=True,
        attaches=True,
        is_local=True,
    ),
    # Documented: reasoning stays in the text unless a setting of the developer page puts it into `reasoning_content`.
    # Older versions sent no usage with a stream. A model's template may require alternating turns.
    "lmstudio": Profile(
        base_url="http://127.0.0.1:1234/v1", reasoning="reasoning_content", alternate=True, is_local=True
    ),
    # Documented: `reasoning` (before 0.11 `reasoning_content`) with --reasoning-parser, else `<think>` in the text; the
    # last message is continued only if the request asks for it. Reported: 400 if the template requires turns.
    "vllm": Profile(
        base_url="http://127.0.0.1:8000/v1",
        reasoning="reasoning",
        alternate=True,
        prefills=True,
        prefill_params={"continue_final_message": True, "add_generation_prompt": False},
        is_local=True,
    ),
}


def profile_of(name: ProfileName | None) -> Profile:
    """Return the profile with a name; without a name, the profile of an unknown upstream."""
    return UNKNOWN if name is None else PROFILES[name]
