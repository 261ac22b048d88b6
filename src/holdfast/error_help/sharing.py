"""Help for errors about links and sessions that are shared."""

from __future__ import annotations

from .entry import ErrorHelp

SHARING_ERRORS = (
    ErrorHelp(
        "link_not_found",
        "404",
        "the link is wrong, was revoked, or has expired",
        "All three look the same on purpose. Links are made for one session, and end with it.",
        "Ask the person who sent the link for another.",
        "33.5",
    ),
    ErrorHelp(
        "link_needs_sign_in",
        "401",
        "the link is for callers that are signed in or have a key",
        "Its owner has limited it to people of this server.",
        "Sign in, and open the link again.",
        "33.1",
    ),
    ErrorHelp(
        "owner_only",
        "403",
        "only the owner of a shared session may do this",
        "Agents act with the rights of the session's owner, so no one else runs or steers them there.",
        "Ask a model instead, or use the agent in a chat of your own.",
        "33.9",
    ),
    ErrorHelp(
        "too_many_shares",
        "409",
        "the owner shares 1,000 sessions or links already",
        "Each link and each group counts.",
        "Revoke what is no longer needed, under *Shared chats* in the settings or with `DELETE /api/shares/ID`.",
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
        "a link is read in too many places at once",
        "A node has at most 200 open streams of a link, and 2,000 of all links.",
        "Try again after `Retry-After`. What the link shows can still be read without its events.",
        "33.3",
    ),
)
