"""Agno's agent on each of its models."""

import base64

from agno.agent import Agent, RunEvent
from agno.media import Image
from agno.models.anthropic import Claude
from agno.models.openai import OpenAILike, OpenAIResponses
from given import ADD_ASKED, CITY_ASKED, City, add


def agent(at, model, **options):
    if at.variant == "anthropic":
        llm = Claude(id=model, api_key=at.key, client_params={"base_url": at.url})
    else:
        kind = {"chat": OpenAILike, "responses": OpenAIResponses}[at.variant]
        llm = kind(id=model, base_url=at.v1, api_key=at.key)
        if at.variant == "responses":
            llm.reasoning_summary = "auto"
    return Agent(model=llm, telemetry=False, **options)


def learnt(run):
    return {
        "word": run.status.value.lower() if run.status else None,
        "usage": [run.metrics.input_tokens, run.metrics.output_tokens] if run.metrics else None,
        "reasoning": run.reasoning_content or "",
    }


async def ask(at, model, stream):
    if not stream:
        whole = await agent(at, model).arun(at.prompt)
        at.heard(whole.content)
        return learnt(whole)
    word, reasoning = None, ""
    async for event in agent(at, model).arun(at.prompt, stream=True, stream_events=True):
        if event.event == RunEvent.run_content:
            at.heard(event.content)
            reasoning += event.reasoning_content or ""
        elif event.event in (RunEvent.run_completed, RunEvent.run_error):
            word = "completed" if event.event == RunEvent.run_completed else "error"
    return {"word": word, "reasoning": reasoning}


async def tools(at, model):
    return (await agent(at, model, tools=[add]).arun(ADD_ASKED)).content


async def structured(at, model):
    return (await agent(at, model, output_schema=City).arun(CITY_ASKED)).content.model_dump()


async def picture(at, model):
    image = Image(content=base64.b64decode(at.picture), mime_type="image/png", format="png")
    await agent(at, model).arun("What is it?", images=[image])
