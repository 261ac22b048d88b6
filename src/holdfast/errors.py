"""
Every error that this package raises on purpose.

* HoldfastError                  500  internal_error
  + BadRequest                   400  invalid_request      the request is invalid
  + KeyRevoked                   401  unauthorized         the key was revoked during the request, or changed
  + AccessEnded                  403  access_ended         the account or key has lost its access
  + NoPrice                      403  no_price             a budget counts money, and the model has no price
  + NotFound                     404  not_found
    - RunNotFound                404  run_not_found        no such run, or it is not yours
    - SessionNotFound            404  session_not_found
    - MessageNotFound            404  message_not_found
    - ModelNotFound              404  model_not_found
  + Conflict                     409  conflict
    - RunSettled                 409  run_settled          the run has ended; nothing can be added to it
    - SessionBusy                409  session_busy         another run is active in the session
    - StaleView                  409  stale_view           the session has changed since the caller read it
    - IdempotencyConflict        409  idempotency_conflict the key was used for another request
    - StaleDocument              409  stale_document       the document was changed meanwhile
    - StaleApproval              409  stale_approval       the approval was decided, or its run has ended
    - CannotSteer                409  cannot_steer         the run accepts no message now
    - KeyExists                  409  key_exists           an active API key has that name
    - KeyLimitReached            409  too_many_keys        a person has as many active keys as one may have
    - OwnerTaken                 409  owner_taken          an owner belongs to another person or key
  + ResumeGap                    410  resume_gap           the log no longer reaches back that far
  + RunLimitReached              429  run_limit            too many runs at once
  + StoreUnavailable             503  store_unavailable    the store did not answer; retry later
  + StoreFailed                  500  store_failed         the store cannot save the text of a run
  + ShuttingDown                 503  shutting_down        the server is shutting down
  + SourceFailed                 502  source_failed        a source failed
    - ProviderError              502  upstream_error       the upstream failed
      . ProviderRefused          ...  upstream_…           it answered with an error status
        ~ Unsupported            400  unsupported          the API of the upstream, or ours, has no way to express it
      . ProviderBroke            502  upstream_broke       its stream ended without a finish reason
        ~ AnswerLost             502  answer_lost          the answer to be continued is gone
      . ProviderUnreachable      502  upstream_unreachable no connection could be made
      . NoAnswer                 406  no_answer            the model wrote neither text nor a tool call
    - SourceCancelled            500  source_cancelled     something outside Holdfast cancelled it
    - SourceStalled              504  upstream_stalled     silent for longer than the idle limit
    - DeadlineExceeded           504  deadline_exceeded    the run exceeded its time limit
  + StaleEpoch                   409  stale_epoch          another node owns the run now (internal)
  + LogBehind                    500  log_behind           the stored log is shorter than the owner's (internal)
  + OwnerRefused                 ...  …                    the node that owns the run answered with an error
  + OwnerSilent                  504  owner_silent         the node that owns the run did not answer in time
* BudgetSpent                                              a source has used its budget: its run is stopped, not failed
"""

from __future__ import annotations

from typing import Literal

from .events import NOT_AGAIN, ErrorInfo


def how_to_install(extra: str) -> str:
    """Return the commands that install an extra. The package is in no index yet: it is installed from a clone."""
    return f"`make setup` in a clone, or pip install '/path/to/holdfast[{extra}]'"


class HoldfastError(Exception):
    """Base class: `code` is sent to clients and never changes, `status` is its HTTP status."""

    code: str = "internal_error"
    status: int = 500
    type: str = "server_error"
    param: str | None = None
    retry_after: float | None = None
    message: str = ""
    """What is said, if it is always the same."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or self.message)

    def info(self) -> ErrorInfo:
        """Return the error as it is stored in a settlement and shown by an API."""
        return ErrorInfo(
            code=self.code,
            message=str(self),
            type=self.type,
            param=self.param,
            status=self.status,
            retry_after=self.retry_after,
        )


class BadRequest(HoldfastError):
    """The request is invalid."""

    code = "invalid_request"
    status = 400
    type = "invalid_request_error"

    def __init__(
        self, message: str = "", *, param: str | None = None, code: str | None = None, status: int | None = None
    ) -> None:
        super().__init__(message)
        self.param = param or self.param
        self.code = code or self.code
        self.status = status or self.status


KeyEnd = Literal["revoked", "changed", "expired"]
"""How the access of a key has ended. A changed key gives another access from then on."""
_KEY_ENDS: dict[KeyEnd, str] = {
    "revoked": "The key of this request was revoked.",
    "changed": "The key of this request was changed. Send the request again.",
    "expired": "The key of this request has expired.",
}


class KeyRevoked(HoldfastError):
    """The key was revoked during the request, or it was changed or has expired."""

    code = "unauthorized"
    status = 401
    type = "authentication_error"

    def __init__(self, how: KeyEnd = "revoked") -> None:
        super().__init__(_KEY_ENDS[how])


class AccessEnded(HoldfastError):
    """The person was disabled or deleted, or the key revoked, after the run was accepted."""

    code = "access_ended"
    status = 403
    type = "permission_error"
    message = (
        "The account or key that started this has lost its access, so the model was not called. "
        "Start it again when the access is back."
    )


class NotFound(HoldfastError):
    """The object does not exist, or belongs to another owner. Both look the same on purpose."""

    code = "not_found"
    status = 404
    type = "invalid_request_error"


class RunNotFound(NotFound):
    """No such run, or it is not yours."""

    code = "run_not_found"

    def __init__(self, run_id: str) -> None:
        super().__init__(f"No run {run_id!r}, or it is not yours.")


class SessionNotFound(NotFound):
    """No such session, or it is not yours."""

    code = "session_not_found"

    def __init__(self, session_id: str) -> None:
        super().__init__(f"No session {session_id!r}, or it is not yours.")


class MessageNotFound(NotFound):
    """No such message in the session."""

    code = "message_not_found"

    def __init__(self, message_id: str) -> None:
        super().__init__(f"No message {message_id!r} in this session.")


class ModelNotFound(NotFound):
    """No provider offers the model."""

    code = "model_not_found"
    param = "model"


class NoPrice(HoldfastError):
    """What a model costs is not known, and a budget of the caller counts money."""

    code = "no_price"
    status = 403
    type = "permission_error"
    param = "model"

    def __init__(self, model: str, *, of_calls: bool = False) -> None:
        which, add = ("price of a call", "`call`") if of_calls else ("price", "its price")
        super().__init__(
            f"{model} has no {which}, and a budget of yours counts money. Use another model, or let an admin add {add} "
            "to `prices` of the settings: 0 if it is free."
        )


class Conflict(HoldfastError):
    """The request is valid, but conflicts with the current state."""

    code = "conflict"
    status = 409
    type = "invalid_request_error"


class TooManyKept(Conflict):
    """An owner has reached the maximum number of things of one kind."""

    code = "too_many_kept"

    def __init__(self, noun: str, most: int) -> None:
        super().__init__(f"You have {most} {noun}s already. Delete one first.")


class RunSettled(Conflict):
    """The run has already ended, so it accepts no further events."""

    code = "run_settled"

    def __init__(self, run_id: str) -> None:
        super().__init__(f"Run {run_id} has already ended.")


class SessionBusy(Conflict):
    """Another run is active in the session, and the caller did not say to queue or interrupt."""

    code = "session_busy"

    def __init__(self, run_id: str, *, can_wait: bool = True) -> None:
        ways = "Wait for it, stop it, or send if_busy: queue or interrupt." if can_wait else "Wait for it, or stop it."
        super().__init__(f"The session is busy with run {run_id}. {ways}")
        self.run_id = run_id


class StaleView(Conflict):
    """The session has changed since the caller read it."""

    code = "stale_view"
    message = "The session has changed since you loaded it. Load it again."


class IdempotencyConflict(Conflict):
    """The idempotency key was used before, with another request body."""

    code = "idempotency_conflict"
    message = "This Idempotency-Key was used before with another request. Use a new key."


class StaleDocument(Conflict):
    """A document is not in the version that the writer has seen."""

    code = "stale_document"

    def __init__(self, kind: str, id: str) -> None:
        super().__init__(f"The {kind} {id!r} has changed since it was read. Read it again.")


class StaleApproval(Conflict):
    """The approval was decided by someone else, has expired, or its run has ended."""

    code = "stale_approval"

    def __init__(self, approval_id: str) -> None:
        super().__init__(f"Approval {approval_id} was already decided, or its run has ended.")


class CannotSteer(Conflict):
    """The run accepts no message now; the error says why."""

    code = "cannot_steer"


class CannotFork(Conflict):
    """No answer can go on from this place; the error says why, and where one can."""

    code = "cannot_fork"


class KeyExists(Conflict):
    """An active API key has that name."""

    code = "key_exists"

    def __init__(self, name: str) -> None:
        super().__init__(f"The key {name!r} already exists. Revoke it first, or choose another name.")


class OwnerTaken(Conflict):
    """An owner belongs to another account, to a service, or to a key of the settings file."""

    code = "owner_taken"

    def __init__(self, owner: str) -> None:
        super().__init__(f"The owner {owner!r} belongs to another person or key.")


class KeyLimitReached(Conflict):
    """A person has as many active keys as one may have."""

    code = "too_many_keys"

    def __init__(self, most: int) -> None:
        super().__init__(f"A person has {most} keys at most. Revoke one first.")


class ResumeGap(HoldfastError):
    """The log was trimmed and no longer reaches back to the caller's cursor."""

    code = "resume_gap"
    status = 410
    type = "invalid_request_error"

    def __init__(self, oldest: int) -> None:
        super().__init__(
            f"The events before {oldest} are no longer kept. Read from after={oldest - 1}, or from after=snapshot."
        )
        self.oldest = oldest


class RunLimitReached(HoldfastError):
    """The limit of concurrent runs is reached."""

    code = "run_limit"
    status = 429
    type = "rate_limit_error"

    def __init__(self, limit: int, retry_after: float = 1.0) -> None:
        super().__init__(f"Limit of {limit} concurrent runs reached. Try again shortly.")
        self.retry_after = retry_after


class StoreUnavailable(HoldfastError):
    """The store did not answer. A later try may succeed."""

    code = "store_unavailable"
    status = 503
    retry_after = 2.0


class StoreFailed(HoldfastError):
    """The store raised an unexpected error: the text of the run since then cannot be saved."""

    code = "store_failed"
    message = "The text of this run could not be saved. See the server's log."


class ShuttingDown(HoldfastError):
    """The server is shutting down and starts nothing new."""

    code = "shutting_down"
    status = 503
    retry_after = 2.0
    message = "The server is shutting down. Try again in a moment."


class SourceFailed(HoldfastError):
    """A source failed. Sources raise this, or a subclass, with their message."""

    code = "source_failed"
    status = 502
    type = NOT_AGAIN

    def __init__(self, message: str = "", *, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code or self.code


class SourceCancelled(SourceFailed):
    """Something outside of Holdfast cancelled the source."""

    code = "source_cancelled"
    status = 500
    message = "The generator's task was cancelled by other code. To end a run, call run.stop()."


class ProviderError(SourceFailed):
    """The upstream failed."""

    code = "upstream_error"


NOT_RETRIED = 406
"""HTTP status of an answer that cannot be delivered although a model has worked on it: a second request costs twice.

The request is not at fault. Besides 400 it is the status that fewest clients repeat (docs/wires/README.md), and none
interprets it: they show the code and the message of the error.
"""


OVERLOADED = 529
"""Anthropic's status for an upstream that is overloaded: the same request may succeed a little later."""


class ProviderRefused(ProviderError):
    """The upstream answered with an error status."""

    def __init__(self, message: str, *, code: str, status: int, retry_after: float | None = None) -> None:
        super().__init__(message, code=code)
        self.status = status
        self.retry_after = retry_after
        if status == OVERLOADED:
            self.type = HoldfastError.type
        elif status < 500:
            self.type = "rate_limit_error" if status == 429 else "invalid_request_error"


class Unsupported(ProviderRefused):
    """The request needs a feature that the upstream's API lacks, or whose answer could not be passed on."""

    code = "unsupported"
    status = 400

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message, code=self.code, status=self.status)
        self.param = param or self.param


class ProviderBroke(ProviderError):
    """The upstream's stream ended without a reason, or was invalid."""

    code = "upstream_broke"


class ProviderUnreachable(ProviderError):
    """No connection to the upstream could be made."""

    code = "upstream_unreachable"


class NoAnswer(ProviderError):
    """The model ended properly, but wrote neither text nor a tool call. It was asked, and may have charged for it."""

    code = "no_answer"
    status = NOT_RETRIED
    message = "The model gave no response."


class AnswerLost(ProviderBroke):
    """The answer that was to be continued after a restart is gone, or differs from the text already shown."""

    code = "answer_lost"


class SourceStalled(SourceFailed):
    """The source was silent for too long: `what` it did not do, and `who` it is if that is known."""

    code = "upstream_stalled"
    status = 504

    def __init__(self, seconds: float, what: str = "sent nothing", who: str = "The upstream") -> None:
        super().__init__(f"{who} {what} for {seconds:.4g} s.")


class DeadlineExceeded(SourceFailed):
    """The run exceeded its deadline."""

    code = "deadline_exceeded"
    status = 504

    def __init__(self, seconds: float) -> None:
        super().__init__(f"The run took longer than its limit of {seconds:g} s.")


class BudgetSpent(Exception):
    """A source has used its budget. Sources raise it; the run is then stopped by `budget`, not failed."""


class StaleEpoch(HoldfastError):
    """Another process owns the run now. Writes of this process are refused."""

    code = "stale_epoch"
    status = 409

    def __init__(self, run_id: str) -> None:
        super().__init__(f"Run {run_id} now belongs to another process.")


class LogBehind(HoldfastError):
    """The stored log of a run ends before its owner's next event: the store was rolled back."""

    code = "log_behind"

    def __init__(self, run_id: str, end: int) -> None:
        super().__init__(f"The stored log of run {run_id} ends at {end}.")
        self.end = end


class OwnerRefused(HoldfastError):
    """The node that owns a run answered a request with an error, which is passed on unchanged."""

    def __init__(self, error: ErrorInfo) -> None:
        super().__init__(error.message)
        self.code, self.type, self.param = error.code, error.type, error.param
        self.status = error.status or self.status
        self.retry_after = error.retry_after


class OwnerSilent(HoldfastError):
    """The node that owns a run did not answer a request in time."""

    code = "owner_silent"
    status = 504

    def __init__(self, run_id: str, *, taken: bool) -> None:
        became = "It had taken the request, which may still take effect." if taken else "The request was withdrawn."
        super().__init__(f"The node that owns run {run_id} did not answer in time. {became} Try again.")
