"""The embedded model's weights, fetched with a bar that shows how far that is."""

from __future__ import annotations

from rich.console import Console
from rich.progress import DownloadColumn, Progress

from ..errors import HoldfastError
from ..providers.local import Local
from ..providers.weights import fetch_now


def fetch(model: Local) -> None:
    """Fetch the weights, and tell how that goes."""
    console = Console(stderr=True)
    try:
        with Progress(*Progress.get_default_columns(), DownloadColumn(), console=console, transient=True) as bar:
            task = bar.add_task("Fetching the embedded model", total=None)
            fetch_now(model.folder, lambda done, total: bar.update(task, completed=done, total=total))
        console.print("The embedded model is there.")
    except HoldfastError as error:
        console.print(f"The embedded model could not be fetched: {error}")
