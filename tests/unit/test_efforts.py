"""Which models take a reasoning effort: by their names, and as a list says."""

import pytest

from holdfast.upstreams.efforts import anthropic_efforts, gemini_efforts, ollama_efforts, openai_efforts
from holdfast.upstreams.facts import facts_in
from tests.requirements import requirement

USUAL = ("low", "medium", "high")


@requirement("model.efforts")
@pytest.mark.parametrize(
    ("efforts_of", "model", "efforts"),
    [
        (openai_efforts, "gpt-4.1", ()),
        (openai_efforts, "gpt-5", ("minimal", *USUAL)),
        (openai_efforts, "gpt-5.2", ("none", *USUAL)),
        (openai_efforts, "gpt-5-chat-latest", ()),
        (openai_efforts, "openai/o3-mini", USUAL),
        (openai_efforts, "gpt-oss-20b", USUAL),
        (openai_efforts, "mistral-o3", ()),
        (anthropic_efforts, "claude-opus-4-5-20251101", ("none", *USUAL)),
        (anthropic_efforts, "claude-sonnet-4-5", ()),
        (anthropic_efforts, "claude-3-7-sonnet-latest", ()),
        (gemini_efforts, "gemini-2.5-flash", ("none", *USUAL)),
        (gemini_efforts, "models/gemini-2.5-pro", USUAL),
        (gemini_efforts, "gemini-3-pro-preview", ("low", "high")),
        (gemini_efforts, "gemini-2.0-flash", ()),
        (ollama_efforts, "gpt-oss:20b", USUAL),
        (ollama_efforts, "qwen3:8b", ("none",)),
        (ollama_efforts, "llama3.2", ()),
    ],
)
def test_a_model_takes_the_efforts_that_its_maker_documents(efforts_of, model, efforts):
    """A control that a model refuses is worse than none."""
    assert efforts == efforts_of(model)


@requirement("model.efforts")
def test_a_list_that_names_reasoning_promises_it():
    """OpenRouter says for each model which parameters it takes."""
    listed = [{"id": "a/b", "supported_parameters": ["reasoning", "tools"]}, {"id": "c/d", "supported_parameters": []}]
    assert {"a/b": USUAL} == {name: facts.efforts for name, facts in facts_in({"data": listed}).items()}
