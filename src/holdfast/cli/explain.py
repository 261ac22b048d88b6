"""`holdfast explain`: what the code of an error or a notice means. It needs no server."""

from __future__ import annotations

import difflib

import click

from ..error_help import ERRORS, NOTICES
from ..error_help.page import error_list_text, error_text


@click.command("explain")
@click.argument("code", required=False)
def explain_command(code: str | None) -> None:
    """Explain an error code: cause, and what to do.

    \b
    Examples:
      holdfast explain upstream_auth
      holdfast explain                     list all codes
    """
    if code is None:
        click.echo(error_list_text(), nl=False)
    elif code in ERRORS:
        click.echo(error_text(ERRORS[code]), nl=False)
    elif code in NOTICES:
        click.echo(f"{code} (a notice, no error)\n{NOTICES[code]}")
    else:
        near = difflib.get_close_matches(code, [*ERRORS, *NOTICES], 1)
        raise click.ClickException(
            f"There is no error code {code!r}. " + (f"Did you mean {near[0]}?" if near else "See `holdfast explain`.")
        )
