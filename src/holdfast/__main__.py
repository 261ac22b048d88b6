"""`holdfast`, and `python -m holdfast`."""

import sys
from importlib import import_module

OF_THE_SERVER = {
    *("aiohappyeyeballs", "anyio", "argon2", "click", "cryptography", "fido2", "httptools", "prompt_toolkit", "rich"),
    *("segno", "starlette", "uvicorn", "uvloop", "websockets", "zxcvbn"),
}
"""What the extra `server` installs, by the names that it is imported by."""


def run_command() -> None:
    """Run a command. Without the packages that it needs, say which extra has them."""
    try:
        import_module("holdfast.cli").main()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in OF_THE_SERVER:
            raise
        how = import_module("holdfast.errors").how_to_install("server")
        sys.exit(f"The command line needs {error.name}, which is not installed: {how}")


if __name__ == "__main__":
    run_command()
