"""Simon Willison's llm, by its Python API and its file of models."""

import base64
import json
import os
from pathlib import Path

FOLDER = Path.home() / "llm"
FOLDER.mkdir(exist_ok=True)
os.environ["LLM_USER_PATH"] = str(FOLDER)

import llm  # noqa: E402 - it reads its folder's name when it is imported
from given import ADD_ASKED, CITY_ASKED, City, add  # noqa: E402


def get(at, model):
    lines = [f"- model_id: {model}", f"  model_name: {model}", f"  api_base: {at.v1}", "  supports_tools: true"]
    lines += ["  supports_schema: true", "  vision: true", "  api_key_name: holdfast"]
    (FOLDER / "extra-openai-models.yaml").write_text("\n".join(lines) + "\n")
    (FOLDER / "keys.json").write_text(json.dumps({"holdfast": at.key}))
    return llm.get_async_model(model)


async def ask(at, model, stream):
    response = get(at, model).prompt(at.prompt, stream=stream)
    async for text in response:
        at.heard(text)
    usage = await response.usage()
    return {"usage": [usage.input, usage.output]}


async def tools(at, model):
    return await get(at, model).chain(ADD_ASKED, tools=[add], stream=False).text()


async def structured(at, model):
    return json.loads(await get(at, model).prompt(CITY_ASKED, schema=City, stream=False).text())


async def picture(at, model):
    attachment = llm.Attachment(type="image/png", content=base64.b64decode(at.picture))
    await get(at, model).prompt("What is it?", attachments=[attachment], stream=False).text()
