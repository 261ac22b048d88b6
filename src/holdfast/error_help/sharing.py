"""Help for errors about links and sessions that are shared."""

from __future__ import annotations

from .entry import ErrorHelp

SHARING_ERRORS = (
    ErrorHelp(
        "link_not_found",
        "404",
        "the link is wrong, was revoked, or has expired",
        "All three look the same on purpose. A link belongs to one session, and ends when that is deleted.",
        "Ask the person who sent the link for another.",
        "33.5",
    ),
    ErrorHelp(
        "link_needs_sign_in",
        "401",
        "the link requires a sign-in or a key",
        "Its owner has restricted it to people with an account on this server.",
        "Sign in, and open the link again.",
        "33.1",
    ),
    ErrorHelp(
        "owner_only",
        "403",
        "only the owner of a shared session may do this",
        "Agents act with the rights of the session's owner, so no one else may run or steer them there.",
        "Ask a model instead, or use the agent in a chat of your own.",
        "33.9",
    ),
    ErrorHelp(
        "too_many_shares",
        "409",
        "the owner already has 1,000 shares",
        "Each link and each group counts.",
        "Revoke shares that you no longer need, under *Shared chats* in the settings or with `DELETE /api/shares/ID`.",
    ),
    ErrorHelp(
        "no_session",
        "409",
        "a run cannot be shared, because it belongs to no session",
        "It was started by a program, without a session: its text is kept for no one else.",
        "Start it in a session, and share that.",
        "33.1",
    ),
    ErrorHelp(
        "too_many_spectators",
        "429",
        "the link has too many readers at once",
        "A node allows at most 200 open streams of one link, and 2,000 of all links.",
        "Try again after `Retry-After`. The shared chat itself can still be read, without live updates.",
        "33.3",
    ),
)
