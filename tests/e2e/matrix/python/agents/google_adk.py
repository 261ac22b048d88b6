"""Google's Agent Development Kit, with LiteLLM's model as its documentation has it for other providers."""

import base64

from given import ADD_ASKED, CITY_ASKED, City, add
from google.adk.agents import Agent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types


async def run(at, model, parts, mode=StreamingMode.NONE, **options):
    llm = LiteLlm(model=f"openai/{model}", api_base=at.v1, api_key=at.key)
    runner = InMemoryRunner(agent=Agent(name="agent", model=llm, **options), app_name="app")
    session = await runner.session_service.create_session(app_name="app", user_id="ada")
    message = types.Content(role="user", parts=parts)
    async for event in runner.run_async(
        user_id="ada", session_id=session.id, new_message=message, run_config=RunConfig(streaming_mode=mode)
    ):
        yield event


async def ask(at, model, stream):
    usage, word = None, None
    mode = StreamingMode.SSE if stream else StreamingMode.NONE
    async for event in run(at, model, [types.Part(text=at.prompt)], mode):
        usage = event.usage_metadata or usage
        word = event.error_code or (event.finish_reason.name.lower() if event.finish_reason else word)
        if event.content and (event.partial or not stream):
            at.heard("".join(part.text or "" for part in event.content.parts if not part.thought))
    counts = [usage.prompt_token_count, usage.candidates_token_count] if usage else None
    return {"word": word, "usage": counts}


async def final(at, model, parts, **options):
    async for event in run(at, model, parts, **options):
        if event.is_final_response() and event.content:
            return event.content.parts[-1].text


async def tools(at, model):
    return await final(at, model, [types.Part(text=ADD_ASKED)], tools=[add])


async def structured(at, model):
    return City.model_validate_json(
        await final(at, model, [types.Part(text=CITY_ASKED)], output_schema=City)
    ).model_dump()


async def picture(at, model):
    image = types.Part.from_bytes(data=base64.b64decode(at.picture), mime_type="image/png")
    await final(at, model, [types.Part(text="What is it?"), image])
