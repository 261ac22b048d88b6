"""Andrew Ng's aisuite."""

import aisuite
from given import ADD_ASKED, add


def client(at):
    return aisuite.Client({"openai": {"base_url": at.v1, "api_key": at.key}})


def ask(at, model, stream):
    whole = client(at).chat.completions.create(
        model=f"openai:{model}", messages=[{"role": "user", "content": at.prompt}]
    )
    at.heard(whole.choices[0].message.content)
    usage = whole.usage
    return {"word": whole.choices[0].finish_reason, "usage": [usage.prompt_tokens, usage.completion_tokens]}


def tools(at, model):
    whole = client(at).chat.completions.create(
        model=f"openai:{model}", messages=[{"role": "user", "content": ADD_ASKED}], tools=[add], max_turns=3
    )
    return whole.choices[0].message.content


def picture(at, model):
    url = {"url": f"data:image/png;base64,{at.picture}"}
    client(at).chat.completions.create(
        model=f"openai:{model}", messages=[{"role": "user", "content": [{"type": "image_url", "image_url": url}]}]
    )
