"""Help for errors of the server itself: store, nodes, settings, start."""

from __future__ import annotations

from .entry import ErrorHelp

_START = "*start*"

OPERATION_ERRORS = (
    ErrorHelp(
        "internal_error",
        "500",
        "a bug in Holdfast; the server's log has the details",
        "Something happened that was not foreseen.",
        "Find the `x-request-id` of the response in the log, and report both.",
    ),
    ErrorHelp(
        "store_failed",
        "500",
        "the store raised an unexpected error; the run has failed, with the text that was saved",
        "The database is damaged, or the disk has errors.",
        "Read the log, then run `holdfast db check`. Restore a backup if the file is damaged.",
        "20.11",
    ),
    ErrorHelp(
        "store_unavailable",
        "503",
        "the store did not answer; retry later",
        "The disk is full or too slow, or PostgreSQL cannot be reached.",
        "Repeat the request after `Retry-After`. `GET /ready` and `holdfast doctor` show the state of the store.",
    ),
    ErrorHelp(
        "keys_unavailable",
        "503",
        "the server could not read its keys for 10 s, so it accepts none of them",
        "The keys are in the store, and the store does not answer. A revoked key must not stay valid meanwhile.",
        "Bring the store back. The server then accepts keys again by itself.",
        "19.11",
    ),
    ErrorHelp(
        "shutting_down",
        "503",
        "the server is shutting down and starts nothing new",
        "It was told to end, for an upgrade for example.",
        "Repeat the request after `Retry-After`.",
    ),
    ErrorHelp(
        "task_failing",
        "503",
        "`/ready` only: a background task fails; the message names it",
        "The log has the exception of the task. The server repeats it.",
        "Read the log. The server is ready again when the task succeeds.",
        "17.4",
    ),
    ErrorHelp(
        "owner_silent",
        "504",
        "the node that owns the run did not answer within 8 s; the message says whether the request was withdrawn",
        "The other server is overloaded or has just died.",
        "Try again. If it is dead, another server takes over its runs within seconds. `holdfast nodes` shows them.",
        "20.13",
    ),
    ErrorHelp(
        "stale_epoch",
        "409",
        "another node owns the run now; internal, never sent",
        "A server was cut off from the store for too long, and another one has taken over.",
        "Nothing. You find it in logs only.",
    ),
    ErrorHelp(
        "log_behind",
        "500",
        "the stored log is shorter than the owner's; internal, never sent",
        "The database was restored to an earlier state while servers were running.",
        "Stop all servers before you restore a database.",
    ),
    ErrorHelp(
        "batch_half_made",
        "503",
        "another server has been storing the batch with the same key for 8 s; repeat the request",
        "Two servers got the same request, and one of them is slow or has died.",
        "Repeat the request with the same `Idempotency-Key`.",
    ),
    ErrorHelp(
        "metrics_off",
        "404",
        "`/metrics` only: metrics are off",
        "Neither `metrics` nor `metrics_port` is set.",
        "Set one of them, and restart.",
        "17.12",
    ),
    ErrorHelp(
        "key_exists",
        "409",
        "an API key in force already has that name; only `holdfast key new` makes keys today",
        "Names of keys are the names of owners, so each is used once.",
        "Revoke the key first with `holdfast key revoke NAME`, or choose another name.",
    ),
    ErrorHelp(
        "setting_pinned",
        "409",
        "the value is set by a flag, the environment or the settings file; the message says which",
        "What the operator has set takes precedence over what the page sets.",
        "Change it where it is set, or remove it there.",
    ),
    ErrorHelp(
        "settings_changed",
        "409",
        "the settings were changed through another server at the same moment",
        "Two admins changed them at once.",
        "Read the settings again, then repeat the change.",
    ),
    ErrorHelp(
        "settings_not_saved",
        "503",
        "the settings could not be saved; nothing has changed",
        "The data folder is full or cannot be written, or the store did not answer.",
        "Repair that, then repeat the change.",
    ),
    ErrorHelp(
        "settings_not_reloaded",
        "409",
        "the settings file is invalid; nothing has changed",
        "A name is misspelt or a value is wrong. The message has the line.",
        "Correct the file. `holdfast config check` checks it without a server.",
        "17.14",
    ),
    ErrorHelp(
        "cannot_reload",
        "409",
        "the server has no settings file: it is part of another program",
        "The program that embeds the server passed the settings itself.",
        "Restart that program with other settings.",
        "17.14",
    ),
)
"""Errors of a running server."""

START_ERRORS = (
    ErrorHelp(
        "bad_settings",
        _START,
        "a setting is invalid",
        "A name is misspelt, a value is out of range, a variable is missing, or two settings exclude each other.",
        "Correct what the message names. `holdfast config check` checks everything at once.",
    ),
    ErrorHelp(
        "data_folder_not_safe",
        _START,
        "another user could change the data folder",
        "The folder belongs to another user, or its group or all users may write to it.",
        "`chmod go-w` the folder, or choose another with `--data`.",
    ),
    ErrorHelp(
        "store_in_use",
        _START,
        "another process uses the data folder, or servers run that cannot work with newer tables",
        "A second server was started on one data folder, or an upgrade was started beside older servers.",
        "Stop the other process; the message names it. For several servers on one store use PostgreSQL.",
    ),
    ErrorHelp(
        "store_too_new",
        _START,
        "a newer version has written the data folder",
        "Holdfast was downgraded.",
        "Install the newer version again, or restore the backup from before the upgrade.",
    ),
    ErrorHelp(
        "store_damaged",
        _START,
        "the file is damaged, or not a Holdfast database",
        "The disk failed, or another program wrote the file.",
        "Keep a copy of the file, run `holdfast db check`, and restore a backup.",
    ),
    ErrorHelp(
        "store_read_only",
        _START,
        "the data folder cannot be written",
        "The folder belongs to another user, or its file system is mounted read-only.",
        "Start the server as the user who owns the folder, or choose another with `--data`.",
    ),
    ErrorHelp(
        "store_not_installed",
        _START,
        "the store is PostgreSQL, and asyncpg is not installed",
        "The extra `postgres` is missing.",
        "`pip install 'holdfast[postgres]'`.",
    ),
    ErrorHelp(
        "metrics_not_installed",
        _START,
        "metrics are on, and prometheus-client is not installed",
        "The extra `metrics` is missing.",
        "`pip install 'holdfast[metrics]'`, or turn metrics off.",
    ),
    ErrorHelp(
        "copy_refused",
        _START,
        "`holdfast copy`: the target has something else, or the two stores differ",
        "The target is not empty, or a row was not copied as it is.",
        "Copy into an empty store. Nothing of the source has changed.",
    ),
)
"""Errors that commands print, before or without a server."""
