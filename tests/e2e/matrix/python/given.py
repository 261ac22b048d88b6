"""What the drivers share: the answer's type, and the tool."""

from pydantic import BaseModel


class City(BaseModel):
    """A city."""

    city: str
    inhabitants: int


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first number
        b: the second number
    """
    return a + b


ADD = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
"""The parameters of `add`, as a JSON schema."""
CITY_ASKED = "Describe a city."
ADD_ASKED = "Add 1 and 2, and 3 and 4."
