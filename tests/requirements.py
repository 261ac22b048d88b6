"""What Holdfast promises, as data: each promise has an id, and each id is bound to tests by `@requirement(id)`.

`tests/unit/test_requirements.py` checks both ways: no promise without a test, no test with an unknown promise.
In JavaScript a comment binds: `// @requirement("start.text-exact")`.

"U" is a scripted upstream that can answer, stall, stay silent, cut the connection, end without a finish reason, send an
error in band, send `length`, answer 401, 429 and 500, and say when its own client went away.
"""

import pytest

REQUIREMENTS: dict[str, str] = {
    # start
    "start.stream-shape": (
        "Every chunk has one chatcmpl- id and the asked model; role first; then an empty delta with a "
        "finish_reason last; then [DONE]."
    ),
    "start.default-json": 'Without `stream` (or with "stream": "false") the answer is one chat.completion object.',
    "start.text-exact": (
        "The deltas concatenate to exactly what U sent: UTF-8 split across reads, CRLF, comments, no space after "
        "`data:`."
    ),
    "start.id-at-once": "A detached start answers with a run id in under 1 s while U is silent.",
    "start.early-failure-status": (
        "U's 400, 401, 404, 429, 500 or refused connection before any text is a real HTTP status, streaming or not."
    ),
    "start.bad-input": (
        "Empty messages, invalid JSON, wrong types, a body over the limit (chunked too) and deep nesting get 400, "
        "413 or 422 with an error object; no run, nothing stored."
    ),
    "start.idempotent": (
        "The same Idempotency-Key gives the same run and calls U once; another body gets 409; across a restart too."
    ),
    "start.reasoning-apart": (
        "Reasoning fields and a leading <think> block arrive as reasoning, never as content, tags split across "
        "deltas too; a literal <think> in code or mid-answer stays text."
    ),
    "start.agent-late-text": (
        "An agent whose text comes only at its end still delivers it as a delta before the finish; the stream "
        "stays open between segments."
    ),
    # subscribe
    "sub.replay-then-live": "A late subscriber is replayed what was, then follows live.",
    "sub.same-for-all": "A hundred subscribers see the same events in one order.",
    "sub.resume-exact": "After n comes n+1.",
    "sub.after-end": "Subscribing to a settled run replays it and closes.",
    "sub.unknown-404": "An unknown run is 404.",
    "sub.atomic-attach": "Ten thousand attaches racing appends: no gap, no repeat.",
    "sub.own-seq": "Every event has its own seq, the terminal one too.",
    "sub.bad-cursor": "A cursor that is no number, or lies ahead of the log, starts at event 1 and is told so.",
    "sub.gap-410": "A cursor whose events are gone gets 410, never a silent gap.",
    "sub.two-tabs": "The session feed shows every tab the same runs.",
    "sub.status": "The status has the text so far while running, outcome and usage after.",
    "sub.timeline": "When each event came can be asked for, while the run goes on and after.",
    "sub.figures": "A message tells what its answer took: time to the first word, pace, tokens, cost.",
    "sub.attached-waits": "An attached run that is kept nowhere waits for a client who reads slowly: it loses no word.",
    "sub.broken-off": "A stream that cannot go on says so on its wire, or is cut off: it never seems to end well.",
    "sub.slow-reader-bounded": (
        "A reader that never reads costs bounded memory, never slows the run, and can resume to the end."
    ),
    # stop
    "stop.prompt": "A stopped run settles in under 1 s, while U streams and while U is silent.",
    "stop.closes-upstream": "U sees its connection closed in under 1 s.",
    "stop.partial-once": "Exactly one assistant message, with exactly the text that was streamed, marked partial.",
    "stop.no-text": "Where nothing was visible no assistant message is kept; the user's message stays.",
    "stop.terminal-event": "Every subscriber gets one run.settled that says stopped.",
    "stop.before-first-step": "A stop before the source's first step settles the run.",
    "stop.races-end": "A stop racing the end gives complete or partial, never both, and the event agrees with history.",
    "stop.twice": "A second stop changes nothing and gets the same answer.",
    "stop.fifty-at-once": "Fifty stops at once give one settlement.",
    "stop.stale": "An old run id never touches the new run.",
    "stop.queued": "A queued run can be stopped before it starts.",
    "stop.ignoring-source": "A source that swallows cancellation is abandoned after a grace period and fenced off.",
    "stop.history": (
        "The model next sees the user, the partial as assistant and the new user message; never a cancel marker or "
        "error text."
    ),
    "stop.think": "Text only inside an unclosed <think> leaves no partial; after a closed one only the answer is left.",
    "stop.usage": "Usage so far is recorded, with its source.",
    "stop.receipt": "A stop says when it was asked, when the upstream closed and when the run settled.",
    "stop.tools": (
        "Processes and MCP calls of a stopped agent end within 5 s; calls without results are settled so that "
        "history stays valid for every provider."
    ),
    # disconnect
    "gone.attached": (
        "An attached run's upstream closes in under 1 s: mid-await, before the first token, non-streaming too; the "
        "partial is stored once; the source's interrupt hook is called once with a reason."
    ),
    "gone.detached": "With nobody watching a detached run completes and is stored once, complete.",
    "gone.after-end": "A run that finished stays completed when its client leaves.",
    "gone.same-for-agents": "Chat and agent follow the same rules.",
    "gone.spec-2.4": "The same holds on servers that announce ASGI 2.4.",
    # MCP servers
    "mcp.tools": "An agent has the tools of an MCP server, by stdio and HTTP; it is connected when needed, and shared.",
    "mcp.stop": "A stop or a time-out cancels a call by the protocol's own notification; its progress is shown.",
    "mcp.death": "A server's death in mid-call is told as it is: it may have run; the next call has a new connection.",
    "mcp.shutdown": "The end of Holdfast leaves no process of an MCP server.",
    "mcp.secrets": "What a server was given as environment or headers is not shown in errors.",
    # agents that others wrote
    "byo.every-wire": "A published async generator is a model on every surface, with the same text and the same truth.",
    "byo.stop": "A stop, or the client's leaving, cancels a published agent in its own task; what it had said is kept.",
    "byo.frameworks": "Agents of pydantic-ai, OpenAI's Agents SDK and LangGraph are published as they are.",
    # truth, on every surface, streaming and not
    "truth.completed": "An answer that ended by itself is completed.",
    "truth.length": "An answer cut at the length limit says so.",
    "truth.content-filter": "An answer cut by a content filter says so.",
    "truth.raise": "A source that raises is a failure.",
    "truth.failed-result": "A source that says it failed is a failure.",
    "truth.in-band-error": "An error inside U's stream is a failure.",
    "truth.cut": "A cut connection is a failure.",
    "truth.eof": "An end without a finish reason is no success.",
    "truth.stall": "Silence beyond the idle limit is a failure.",
    "truth.deadline": "A run beyond its deadline is a failure.",
    "truth.no-error-text-in-content": "No error text is ever content.",
    "truth.redacted": "No upstream secret is in an error.",
    # responses
    "resp.events": (
        "Every event of a response comes in OpenAI's order with its own sequence_number from 0, and what is fetched "
        "is what the last event had."
    ),
    "resp.asked": "Input items, tools and parameters reach the model in a chat's words, and nothing else does.",
    "resp.refused": "What OpenAI has and we do not is refused with a 400 that names it; nothing is started.",
    "resp.chain": (
        "A response is shown what was said in the stored ones before it, calls and partials too, and not their "
        "instructions."
    ),
    "resp.background": "A background response has an id at once, and shows how far it is.",
    "resp.cancel": "A cancelled response, in the background or not, keeps what it had said; cancelling is idempotent.",
    "resp.resume": "After event n of a response comes n+1, created in the background or not.",
    "resp.stored": "A stored response survives a restart, is listed, and is gone when it is deleted.",
    "hook.signed": "A webhook is signed so that OpenAI's SDK accepts it, and says truthfully how a response ended.",
    "hook.told": "A webhook is told until it has heard, over failures and kill -9; no redirect is followed.",
    # busy
    "busy.reject": "A second message may be refused while a run is on.",
    "busy.queue": "A second message may be queued; the queue survives a restart and can be edited.",
    "busy.interrupt-order": "An interrupting message comes after the partial of the run that it stopped.",
    "busy.triple-send": "Three sends at once are each handled once.",
    "busy.steer": "A message may steer the run that is on.",
    "busy.sessions-parallel": "Sessions do not wait for one another.",
    "busy.one-run-per-session": "A session has at most one run at a time.",
    # history
    "hist.no-internal-fields": "Nothing of ours reaches a provider.",
    "hist.no-orphan-tools": "No tool call without its result, no result without its call.",
    "hist.alternation": "Roles alternate as providers demand.",
    "hist.regenerate-edit-fork": "Regenerating, editing and forking keep what was.",
    "hist.delete-during-run": "A session deleted during its run stays deleted.",
    "hist.session-id": "A session id keeps the conversation.",
    "hist.no-sharing": "The same first message without a session id shares nothing.",
    # llama.cpp's resumable dialect
    "llama.byte-exact": (
        "The rest from any byte is exactly the rest: live, after the end, for every ending, after a restart."
    ),
    "llama.stop": "DELETE stops the run of a name, tells every reader, and is harmless where nothing runs.",
    "llama.replace": "A new run under a name replaces the one before; of many at once only the last goes on.",
    "llama.lookup": "A lookup tells of the caller's own names whether they ended and how many bytes there are.",
    # the AI SDK's UI message stream
    "ui.shape": "Every part is one that the SDK's own schema takes, in the order in which its client needs them.",
    "ui.resume": "A page that comes back gets the whole of what is going on, then live parts; 204 where nothing is.",
    "ui.stop": "A stop ends the run, keeps the partial, and every reader is told by an abort part.",
    "ui.history": "Of what a client sends only what is new enters; edits and new answers are branches of the session.",
    "ui.start-index": "The rest from any part is exactly the rest, counted from the start or from the end.",
    # crash
    "crash.kill9": (
        "After kill -9 and a restart the run is settled within 20 s; the text that any subscriber saw is in "
        "history once, marked, with the user's message."
    ),
    "crash.resume": (
        "A client that reconnects with its cursor gets the missing events and the terminal one; no gap, no repeat."
    ),
    "crash.goes-on": "A run whose upstream did not stop goes on after a restart: no word lost, repeated or made again.",
    "crash.no-repeat": "No tool call is repeated by itself.",
    "crash.sigterm": "On SIGTERM new starts get 503 with Retry-After; runs drain, or settle with their partial.",
    "crash.store-away": "With the store gone for 30 s runs go on, settle late, and settle once.",
    "crash.disk-full": "A full disk is a clear failure; nothing acknowledged is lost.",
    "workers.any": (
        "With several workers, what nobody keeps is carried by all of them; any run is seen, resumed and stopped, and "
        "what is stored is there, through any of them."
    ),
    "workers.hand-over": (
        "A connection goes to the process whose request it carries: each request is executed once and answered in its "
        "order, whole, and a client that leaves meanwhile leaves nothing behind."
    ),
    "workers.limits": "Limits, settings and keys count over all workers.",
    "workers.killed": (
        "A killed worker takes only its own runs along and comes back; no server, killed or ended, leaves one behind."
    ),
    "nodes.any": "Stop, status and resume work through any node.",
    "nodes.fence": "A paused owner that wakes cannot write.",
    "nodes.takeover": "A dead node's runs are taken over in under 20 s.",
    # compare
    "cmp.panes": "Two to eight panes run at their own pace; one stops without the others.",
    "cmp.stop-all": "All panes stop at once.",
    "cmp.blind": "No byte names a model before the vote.",
    "cmp.vote-once": "A comparison takes one vote.",
    "cmp.failed-pane": "A failed pane is shown failed; it is never fastest, never winner by default.",
    "cmp.reroll-fresh": "A reroll starts fresh.",
    "cmp.sequential": "In sequence, one upstream call is open at a time.",
    "cmp.crash": "A comparison whose server was killed or ended is settled, with the text that was shown.",
    "cmp.scores": "Blind votes between panes that completed give scores, and ratings with intervals.",
    # batches
    "batch.once": "Every prompt of a set is asked of every model, and each answer is kept and counted once.",
    "batch.crash": (
        "After kill -9 half way and a restart a batch goes on: no answer is lost, repeated or counted twice, and what "
        "was kept is not asked again."
    ),
    "batch.stop": "A batch that is stopped keeps what is answered; resumed, it asks only the rest.",
    "batch.agreement": "Answers that completed are right or wrong, as the batch's match says; others are no answer.",
    # other wires
    "wire.truth": "Every wire has one table from a settlement to its own words; only completed looks like success.",
    "wire.anthropic": (
        "Anthropic's clients get blocks, stop reasons and errors as from Anthropic; only what was delivered ends in "
        "message_stop, and leaving stops the run."
    ),
    # settings
    "set.change": "What is set while the server runs counts for the next run, as a whole, and cuts off no run.",
    "set.pinned": "What a flag, the environment or the file sets is not changed elsewhere, and it is said where.",
    "set.secrets": "A key that was set is never shown again, and goes to no other address.",
    "set.admin": "Only an admin changes the settings.",
    "set.found": "A local server that starts later is found; one that went away is told as away.",
    "wire.deterministic": "What was seen of a stream and what is resumed after it are the whole, wherever it was cut.",
    "wire.watch-any": "A run that was started on one wire can be watched on every other and stopped on a third.",
    "wire.ag-ui": (
        "AG-UI's clients get events that the protocol's own types know; RUN_FINISHED says success only for what "
        "completed; a thread is a session, and leaving stops the run."
    ),
    # limits and safety
    "safe.key": "Without the key: 401.",
    "safe.bind": "No open bind without a key.",
    "safe.origin": "A foreign Origin is refused.",
    "safe.host": "A foreign Host is refused.",
    "safe.owner-404": "What belongs to someone else is 404.",
    "safe.post-only": "Nothing changes by GET.",
    "safe.run-limit": "Above the limit of runs: 429 with Retry-After.",
    "safe.body-limit": "A body above the limit is refused before it is read.",
    "safe.sse-injection": "Newlines in data, id or event forge no frame.",
    "safe.markdown": "Markdown runs no script and loads no remote image without consent.",
    "safe.redos": "The think splitter and the parsers take linear time.",
    "safe.secrets": "No key in logs, errors, exports or the page.",
    # the browser
    "ui.page": "The page answers at all its addresses, without a key, under a strict policy, from its own files only.",
    "ui.build": "The committed files of the page are what its source builds to, byte by byte.",
    "ui.browser-chat": (
        "In a real browser: the page's text is the log's; stop, reload, tabs in step, a killed server and a lost "
        "network lose and repeat no word."
    ),
    "ui.browser-sessions": (
        "In a real browser: sessions are renamed, pinned, searched, exported to the letter; deleted with a way back."
    ),
    "ui.browser-composer": (
        "In a real browser: pictures, models, instructions and parameters reach the model; what was typed is not lost."
    ),
    "ui.browser-turns": "In a real browser: queue, interrupt, edit, answer again, branches, fork; by keyboard alone.",
    "ui.browser-truth": "In a real browser: only what completed looks like success, and the rest says why.",
    "ui.browser-access": (
        "In a real browser: no finding of axe in any view, light and dark; phones, 200% zoom and right-to-left text."
    ),
    "ui.browser-compare": (
        "In a real browser: panes are stopped, swapped and voted on; what did not complete never looks like a winner."
    ),
    "ui.browser-inspector": "In a real browser: a run's story, its receipt, its events and its replay are its log.",
    "ui.browser-settings": "In a real browser: keys are written and never shown; what is pinned cannot be changed.",
    "ui.browser-agents": "In a real browser: an agent's calls, approvals and steering stand in their place, always.",
    "ui.browser-language": "In a real browser: the page speaks the language that was chosen, in its own direction.",
    "ui.words": "Every language of the page has every word, and no word of the page stands anywhere else.",
    "ui.browser-smooth": "In a real browser: a long answer and a long session are drawn without blocking the page.",
}

# Promises whose capability is not in this release yet. An id leaves this set with the first test that is bound to it.
LATER: frozenset[str] = frozenset(
    {
        "nodes.any",
        "nodes.fence",
        "nodes.takeover",
    }
)


def requirement(*ids: str) -> pytest.MarkDecorator:
    """Bind a test to the promises that it proves. An unknown id fails at import."""
    unknown = [id for id in ids if id not in REQUIREMENTS]
    if unknown or not ids:
        raise LookupError(f"not in tests/requirements.py: {', '.join(unknown) or 'no id given'}")
    return pytest.mark.requirement(*ids)
