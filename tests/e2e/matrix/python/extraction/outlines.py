"""Outlines, over OpenAI's client."""

import json

import openai
import outlines
from given import CITY_ASKED, City


def llm(at, model):
    return outlines.from_openai(openai.AsyncOpenAI(base_url=at.v1, api_key=at.key), model)


async def ask(at, model, stream):
    if not stream:
        at.heard(await llm(at, model)(at.prompt))
        return {}
    async for text in llm(at, model).stream(at.prompt):
        at.heard(text)
    return {}


async def structured(at, model):
    return json.loads(await llm(at, model)(CITY_ASKED, City))
