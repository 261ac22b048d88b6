"""Runs of your own generator in Django, each for its user. Try it:

python django_app.py migrate && python django_app.py createsuperuser && uvicorn django_app:app
"""

import asyncio
from collections.abc import AsyncGenerator
from importlib import import_module

import django
from django.conf import settings
from django.contrib.auth import aauthenticate, aget_user, alogin
from django.core.asgi import get_asgi_application
from django.core.management import execute_from_command_line
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from starlette.applications import Starlette
from starlette.requests import Request

from holdfast import Engine
from holdfast.starlette import starlette_routes

settings.configure(  # stands for the settings of your project
    SECRET_KEY="not-a-secret",
    ALLOWED_HOSTS=["127.0.0.1", "localhost"],
    ROOT_URLCONF=__name__,
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions"],
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
    ],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "django.sqlite3"}},
)
django.setup()
engine = Engine("sqlite:./data")


async def count(to: int) -> AsyncGenerator[str]:
    for number in range(1, to + 1):
        yield f"{number} "
        await asyncio.sleep(0.05)


async def sign_in(request: HttpRequest) -> HttpResponse:
    user = await aauthenticate(request, username=request.POST["username"], password=request.POST["password"])
    if user is None:
        return HttpResponse(status=401)
    await alogin(request, user)
    return HttpResponse(status=204)


async def counting(request: HttpRequest) -> HttpResponse:
    user = await request.auser()
    if not user.is_authenticated:
        return HttpResponse(status=401)
    run = await engine.start(count(int(request.GET.get("to", "100"))), owner=str(user.pk))
    return JsonResponse({"id": run.id}, status=202)


urlpatterns = [path("sign-in", sign_in), path("counts", counting)]


async def current_user(request: Request) -> str:
    """Return the id of the user whom Django's session names; "" is answered with 401."""
    sent = HttpRequest()
    sessions = import_module(settings.SESSION_ENGINE)
    sent.session = sessions.SessionStore(request.cookies.get(settings.SESSION_COOKIE_NAME))
    return str((await aget_user(sent)).pk or "")


runs = Starlette(routes=starlette_routes(engine, owner=current_user), lifespan=engine.lifespan)
project = get_asgi_application()


async def app(scope, receive, send):
    is_ours = scope["type"] == "lifespan" or scope["path"].startswith("/runs")
    await (runs if is_ours else project)(scope, receive, send)


if __name__ == "__main__":
    execute_from_command_line()
