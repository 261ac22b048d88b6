"""Features: methods with endpoints above them, and features inside features."""

from starlette.requests import Request
from starlette.types import ASGIApp

from holdfast.access import ANYONE, READ
from holdfast.server.kit.feature import Endpoint, Feature, endpoints_of
from holdfast.server.kit.http.errors import NoContent


class Things(Feature):
    """Two paths for one method, and a path for another."""

    @Endpoint("GET", "/a", who=ANYONE)
    @Endpoint("GET", "/b", who=READ)
    async def read(self, request: Request) -> ASGIApp:
        """Return nothing."""
        return NoContent()

    @Endpoint("DELETE", "/a", who=READ)
    async def delete(self, request: Request) -> ASGIApp:
        """Delete nothing."""
        return NoContent()


class Around(Feature):
    """A feature with others inside."""

    def __init__(self, *inner: Feature) -> None:
        self.inner = inner


def test_endpoints_come_in_the_order_in_which_they_are_written():
    """The order is that of the OpenAPI description, which a reader compares with the code."""
    written = [("GET", "/a", ANYONE), ("GET", "/b", READ), ("DELETE", "/a", READ)]

    assert written == [(each.method, each.path, each.who) for each in Things().endpoints()]


def test_a_handler_is_a_method_of_the_object_that_was_built():
    """Two servers in one process have different services; the class has none."""
    one, two = Things(), Things()

    assert [one.read, one.read, one.delete] == [each.handler for each in one.endpoints()]
    assert [two.read, two.read, two.delete] == [each.handler for each in two.endpoints()]


def test_a_method_stays_a_method():
    """What is above it only notes the call: other methods call it as they would any."""
    assert "read" == Things.read.__name__
    assert "Return nothing." == Things.read.__doc__


def test_features_inside_features_are_found_at_any_depth():
    """A server that left one out would not start its chores, and nothing would say so."""
    deepest, inner = Things(), Around()
    outer = Around(inner, Around(deepest))

    assert [outer, inner, outer.inner[1], deepest] == list(outer.all())
    assert ["/a", "/b", "/a"] == [each.path for each in endpoints_of([outer])]
