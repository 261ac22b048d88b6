"""The calls of a server."""

from holdfast.server.app import create_app
from holdfast.server.features.page.web import is_of_the_page
from holdfast.server.kit.feature import Endpoint
from tests.support.served import NO_HOME

ALL: list[Endpoint] = create_app(environ=NO_HOME, store="memory:").state.server.router.endpoints
ENDPOINTS = [each for each in ALL if not is_of_the_page(each.path) and each.path != "/openapi.json"]
"""The calls of the API, without the browser UI and the description."""
