"""The servers that the lab knows: how each is configured for the lab's upstream, and what each does not promise.

Something is promised where the wire has a word for it, unless this table says why not. `--not-promised` adds to it.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

import msgspec

__all__ = ["SERVERS", "ServerFacts"]


class ServerFacts(msgspec.Struct, frozen=True):
    """What is known of a server. `not_promised` has patterns of check ids, each with its reason."""

    name: str
    set_up: str
    """Its configuration for the upstream at `{base_url}`, with the model `{model}`."""
    not_promised: dict[str, str] = {}
    session: str = ""
    """The field by which a chat completion is kept apart from others, where the server would else put them together."""

    def how(self, base_url: str, model: str) -> str:
        """Return the server's configuration for an upstream."""
        return self.set_up.format(base_url=base_url, root=base_url.removesuffix("/v1"), model=model)

    def why_not(self, check: str) -> str | None:
        """Return why a check's promise is none of this server's, or None where it is."""
        return next((why for pattern, why in self.not_promised.items() if fnmatchcase(check, pattern)), None)


AGENT = "it is an agent of its own: tools of the caller are not passed on"
RELAY = "it passes on what its upstream says, as it is"
UNSAID = "what happens to the upstream when a client leaves is not said"
BYTES = dict.fromkeys(("truth/eof", "truth/tool-cut", "truth/nothing", "truth/garbage*", "truth/html*"), RELAY)

SERVERS: dict[str, ServerFacts] = {
    facts.name: facts
    for facts in (
        ServerFacts("any", "give it an OpenAI-compatible provider with the address {base_url} and the model {model}"),
        ServerFacts(
            "holdfast",
            'in its settings file: [[providers]] name = "lab", dialect = "openai", base_url = "{base_url}", '
            'models = ["{model}"]',
        ),
        ServerFacts(
            "litellm",
            "in its config.yaml: model_list: [{{model_name: {model}, litellm_params: {{model: openai/{model}, "
            "api_base: {base_url}, api_key: none}}}}]",
            {"leave/json": "closing the upstream of an answer without streaming is a setting that is off by default"},
        ),
        ServerFacts(
            "portkey",
            "it needs no setting; each request names its upstream in the headers x-portkey-provider: openai and "
            "x-portkey-custom-host: {base_url}",
            {**BYTES, "leave/*": UNSAID},
        ),
        ServerFacts(
            "nanobot",
            "in its config.json: a custom provider with apiBase {base_url}",
            {"truth/tool*": AGENT},
            session="session_id",
        ),
        ServerFacts("hermes-agent", "in its config.yaml: model: base_url: {base_url}", {"truth/tool*": AGENT}),
        ServerFacts("open-webui", "OPENAI_API_BASE_URL={base_url}", {**BYTES, "leave/*": UNSAID}),
        ServerFacts("sglang-router", "--worker-urls {root}", {**BYTES, "leave/*": UNSAID}),
        ServerFacts("vllm-router", "--worker-urls {root}", {**BYTES, "leave/*": UNSAID}),
    )
}
