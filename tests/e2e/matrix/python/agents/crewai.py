"""CrewAI: its model, and a crew of one for the tools."""

import json

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from given import ADD_ASKED, CITY_ASKED, City


def llm(at, model, **options):
    return LLM(model=model, provider="openai", base_url=at.v1, api_key=at.key, **options)


def ask(at, model, stream):
    made = llm(at, model)
    at.heard(made.call([{"role": "user", "content": at.prompt}]))
    usage = made.get_token_usage_summary()
    return {"usage": [usage.prompt_tokens, usage.completion_tokens]}


def crew(at, model, prompt, **options):
    agent = Agent(role="clerk", goal="answer", backstory="none", llm=llm(at, model), tools=options.pop("tools", []))
    task = Task(description=prompt, expected_output="an answer", agent=agent, **options)
    return Crew(agents=[agent], tasks=[task], verbose=False).kickoff()


def tools(at, model):
    @tool("add")
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return crew(at, model, ADD_ASKED, tools=[add]).raw


def structured(at, model):
    said = llm(at, model, response_format=City).call(CITY_ASKED)
    return said.model_dump() if isinstance(said, City) else json.loads(said)
