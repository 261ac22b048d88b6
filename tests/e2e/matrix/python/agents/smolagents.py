"""Hugging Face's smolagents: its OpenAI model, and its agent that calls tools."""

import base64
import io

from given import CITY_ASKED, City
from smolagents import ChatMessageStreamDelta, OpenAIModel, ToolCallingAgent, tool
from smolagents.models import ChatMessage, MessageRole


def llm(at, model):
    return OpenAIModel(model, api_base=at.v1, api_key=at.key)


def says(text):
    return [ChatMessage(role=MessageRole.USER, content=[{"type": "text", "text": text}])]


def ask(at, model, stream):
    if not stream:
        whole = llm(at, model).generate(says(at.prompt))
        at.heard(whole.content)
        return {
            "usage": [whole.token_usage.input_tokens, whole.token_usage.output_tokens],
            "word": whole.raw.choices[0].finish_reason,
        }
    delta: ChatMessageStreamDelta
    for delta in llm(at, model).generate_stream(says(at.prompt)):
        at.heard(delta.content)
    return {}


def tools(at, model):
    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers.

        Args:
            a: the first number
            b: the second number
        """
        return a + b

    return ToolCallingAgent(tools=[add], model=llm(at, model)).run("Add 1 and 2, and 3 and 4.")


def structured(at, model):
    schema = {"type": "json_schema", "json_schema": {"name": "city", "schema": City.model_json_schema()}}
    whole = llm(at, model).generate(says(CITY_ASKED), response_format=schema)
    return City.model_validate_json(whole.content).model_dump()


def picture(at, model):
    from PIL import Image

    image = Image.open(io.BytesIO(base64.b64decode(at.picture)))
    llm(at, model).generate(
        [ChatMessage(role=MessageRole.USER, content=[{"type": "image", "image": image}, {"type": "text", "text": "?"}])]
    )
