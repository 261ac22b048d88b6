"""Instructor: objects from an answer, over OpenAI's and Anthropic's clients."""

import instructor
from given import CITY_ASKED, City


def connected(at):
    if at.variant == "anthropic":
        import anthropic

        return instructor.from_anthropic(anthropic.AsyncAnthropic(base_url=at.url, api_key=at.key))
    import openai

    modes = {"tools": instructor.Mode.TOOLS, "schema": instructor.Mode.JSON_SCHEMA, "json": instructor.Mode.JSON}
    client = openai.AsyncOpenAI(base_url=at.v1, api_key=at.key)
    return instructor.from_openai(client, mode=modes[at.variant])


async def described(at, model):
    return await connected(at).create_with_completion(
        model=model,
        response_model=City,
        max_tokens=1000,
        max_retries=1,
        messages=[{"role": "user", "content": CITY_ASKED}],
    )


async def ask(at, model, stream):
    await described(at, model)
    return {}


async def structured(at, model):
    city, _ = await described(at, model)
    return city.model_dump()
