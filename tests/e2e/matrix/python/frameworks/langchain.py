"""LangChain's chat models, and LangGraph's agent for the tools."""

from given import ADD_ASKED, CITY_ASKED, City, add
from langchain_core.messages import HumanMessage
from langgraph.prebuilt import create_react_agent


def chat(at, model):
    if at.variant == "anthropic":
        from langchain_anthropic import ChatAnthropic

        return ChatAnthropic(model=model, base_url=at.url, api_key=at.key, max_tokens=1000)
    if at.variant == "ollama":
        from langchain_ollama import ChatOllama

        headers = {"headers": {"Authorization": f"Bearer {at.key}"}}
        return ChatOllama(model=model, base_url=at.url, client_kwargs=headers, reasoning=True)
    from langchain_openai import ChatOpenAI

    more = {"use_responses_api": True, "reasoning": {"summary": "auto"}} if at.variant == "responses" else {}
    return ChatOpenAI(model=model, base_url=at.v1, api_key=at.key, stream_usage=True, **more)


async def ask(at, model, stream):
    if not stream:
        whole = await chat(at, model).ainvoke(at.prompt)
        at.heard(whole.text)
    else:
        whole = None
        async for chunk in chat(at, model).astream(at.prompt):
            at.heard(chunk.text)
            whole = chunk if whole is None else whole + chunk
    said = whole.response_metadata
    usage = whole.usage_metadata or {}
    thoughts = [
        block.get("reasoning") or "".join(part["text"] for part in block.get("extras", {}).get("content", []))
        for block in whole.content_blocks
        if block["type"] == "reasoning"
    ]
    return {
        "word": said.get("finish_reason") or said.get("status") or said.get("stop_reason") or said.get("done_reason"),
        "usage": [usage.get("input_tokens"), usage.get("output_tokens")],
        "reasoning": "".join(filter(None, thoughts)),
    }


async def tools(at, model):
    agent = create_react_agent(chat(at, model), [add])
    state = await agent.ainvoke({"messages": [("user", ADD_ASKED)]})
    return state["messages"][-1].text


async def structured(at, model):
    city = await chat(at, model).with_structured_output(City).ainvoke(CITY_ASKED)
    return city.model_dump()


async def picture(at, model):
    block = {"type": "image", "base64": at.picture, "mime_type": "image/png"}
    await chat(at, model).ainvoke([HumanMessage([{"type": "text", "text": "What is it?"}, block])])
