"""Runs of your own generator in FastAPI, each for its owner. Try it: uvicorn fastapi_app:app"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from holdfast import Engine
from holdfast.fastapi import run_routes

USERS = {"token-of-ann": "ann", "token-of-bob": "bob"}  # stands for your sign-in


def current_user(sent: Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())]) -> str:
    user = USERS.get(sent.credentials)
    if user is None:
        raise HTTPException(401)
    return user


async def story(subject: str, pause: float = 1.0) -> AsyncGenerator[str]:
    """Stands for your model or agent: anything that yields text will do."""
    for word in f"Once upon a time there was {subject}. The end.".split():
        yield word + " "
        await asyncio.sleep(pause)


engine = Engine("sqlite:./data")
app = FastAPI(lifespan=engine.lifespan)
app.include_router(run_routes(engine, owner=current_user, start=story))


@app.post("/bedtime", status_code=202)
async def bedtime(user: Annotated[str, Depends(current_user)]) -> dict[str, str]:
    run = await engine.start(story("a sheep"), owner=user, key="bedtime")  # one for each user
    return {"id": run.id}
