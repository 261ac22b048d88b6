"""The download of the built-in model's weights, with a progress bar."""

from __future__ import annotations

from rich.progress import DownloadColumn, Progress

from ..errors import HoldfastError
from ..upstreams.local.provider import Local
from ..upstreams.local.weights import fetch_now
from . import show


def fetch(model: Local) -> None:
    """Download the weights and show the progress."""
    try:
        with Progress(*Progress.get_default_columns(), DownloadColumn(), console=show.err, transient=True) as bar:
            task = bar.add_task("Downloading the built-in model", total=None)
            fetch_now(model.folder, lambda done, total: bar.update(task, completed=done, total=total))
        show.err.print("Built-in model ready.")
    except HoldfastError as error:
        show.err.print(f"Could not download the built-in model: {error}", markup=False)
