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
    "start.first-address": "U is reached at the first of its addresses that answers; silent ones delay little.",
    "start.proxy": (
        "U is reached through the proxy that its provider or the environment names, and directly where NO_PROXY or "
        "loopback says so. A proxy that refuses, hangs or dies is named in the error."
    ),
    "start.own-tls": (
        "U's certificate is checked against `ca_file` alone where that is set, and U is shown `cert`. A file that "
        "cannot be used is refused at the start. An error of a certificate says what to set."
    ),
    "start.tls": (
        "With `tls_cert` the port speaks TLS 1.2 or newer. A renewed certificate is used without a restart, and open "
        "streams stay; one that cannot be used is refused at the start, and later not used. `doctor` tells of its last "
        "14 days. Plain HTTP beyond loopback is warned of at the start."
    ),
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
    "start.own-key": (
        "A program finds a run by a key of its own. Starts at the same time with one key give one run, stored or not, "
        "and close the other sources; owners do not share keys."
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
    "sub.event-source-ends": "A client that has seen the settlement gets 204, at which an EventSource stops asking.",
    "sub.after-end": "Subscribing to a settled run replays it and closes.",
    "sub.unknown-404": "An unknown run is 404.",
    "sub.atomic-attach": "Ten thousand attaches racing appends: no gap, no repeat.",
    "sub.own-seq": "Every event has its own seq, the terminal one too.",
    "sub.bad-cursor": "A cursor that is no number, or lies ahead of the log, starts at event 1 and is told so.",
    "sub.gap-410": "A cursor whose events are gone gets 410, never a silent gap.",
    "sub.two-tabs": "The session feed shows every tab the same runs.",
    "sub.session-list": "A list of sessions hears of every change of one of them, also after a lost connection.",
    "sub.status": "The status has the text so far while running, outcome and usage after.",
    "sub.timeline": "When each event came can be asked for, while the run goes on and after.",
    "sub.figures": "A message tells what its answer took: time to the first word, pace, tokens, cost.",
    "sub.attached-waits": "An attached run that is kept nowhere waits for a client who reads slowly: it loses no word.",
    "sub.broken-off": "A stream that cannot go on says so on its wire, or is cut off: it never seems to end well.",
    "sub.slow-reader-bounded": (
        "A reader that never reads costs bounded memory, never slows the run, and can resume to the end."
    ),
    # embedding
    "embed.owner": (
        "A run of another owner cannot be opened, listed, read or stopped: by the engine, and by the routes for each "
        "framework."
    ),
    "embed.refused": "`engine.start` refuses what is no source at the call, and says what to pass.",
    "embed.kept": "An engine with a store keeps each run, unless it is told not to.",
    "embed.shutdown": "When an app with the engine's lifespan gets SIGINT or SIGTERM, its streams end at once.",
    "embed.extras": "What needs an extra says which one if it is not installed; the engine alone needs msgspec.",
    "embed.nothing-read": (
        "`create_app()` has what it is given: no settings file, environment variable or data folder of the user, and "
        "no model server that is looked for."
    ),
    "embed.mounted": "An app that is mounted under any prefix needs the same keys as without one.",
    "embed.no-key-local": "An app without keys answers only requests that came to a loopback address.",
    "embed.frames": (
        "An event stream may have frames of the program's own. They resume as ours do. A frame that cannot be written "
        "is told, and so is the end."
    ),
    "embed.page": "The documented page resumes by EventSource after a reload, a cut and a restart, and stops its run.",
    "embed.outcome": "Every settlement has its outcome as a word, the same in Python as on the wire.",
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
    "stop.by-this-call": "Of all calls that stop a run, only the one that ended it is told that it did.",
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
    "mcp.limit": (
        "A message of an MCP server that is longer than 8 MB fails the call that waits for it and ends the connection; "
        "nobody else waits."
    ),
    "mcp.shutdown": "The end of Holdfast leaves no process of an MCP server.",
    "mcp.secrets": "What a server was given as environment or headers is not shown in errors.",
    "mcp.managed": "An admin adds, tries, changes and removes MCP servers; runs that go on keep theirs.",
    "mcp.programs": (
        "What starts programs is set up by an admin with a fresh sign-in, or by the user who runs the server; "
        "never with an API key."
    ),
    "mcp.sealed": "Headers and variables of an MCP server are stored encrypted, and never shown again.",
    "mcp.oauth": "A person connects an account at an MCP server by OAuth; their agents use it until they disconnect.",
    "mcp.oauth-attempt": "Only the sign-in that has begun to connect an account finishes it, once, in ten minutes.",
    "mcp.oauth-refresh": "A token that has ended is refreshed once, by one server; a refused account is forgotten.",
    "mcp.oauth-addresses": "No address that an MCP server names for the access leads into a network of one's own.",
    "mcp.oauth-client": "A client that has a secret proves itself as the authorization server takes it.",
    "mcp.oauth-secret": "No answer, page, log or export has a token or a code; erasing a person erases theirs.",
    "managed.agents": "An admin adds, tries, changes and removes agents; a change reaches the next run.",
    "managed.users": "An agent that was set up in the page is there for the people and groups that it names.",
    "managed.cli": "Agents and MCP servers are set up and tried by commands.",
    "managed.removed": "A run whose agent was removed comes to its end; after a restart it is interrupted.",
    "ui.agents-managed": "Agents and MCP servers are set up in the page, by keyboard, on a phone, in each language.",
    # agents that others wrote
    "byo.every-wire": "A published async generator is a model on every surface, with the same text and the same truth.",
    "byo.kinds": "An agent may be an async generator, a coroutine that is handed emit, or blocking code in a thread.",
    "byo.client": "A published agent is told its client's own session name, and whether the client streams.",
    "byo.stop-hook": "A stop hook is called once with the reason of the stop, also when an attached client leaves.",
    "byo.stop": "A stop, or the client's leaving, cancels a published agent in its own task; what it had said is kept.",
    "byo.frameworks": "Agents of pydantic-ai, OpenAI's Agents SDK and LangGraph are published as they are.",
    # which model
    "model.default": (
        "A request that names no model, on any wire, is answered by the default model, and the answer says which; with "
        "one agent and no provider that was set up, that is the agent."
    ),
    "model.bare-name": (
        "An agent answers under its bare name; a bare name leads to a real provider before a demo one, and beside a "
        "real provider never to a demo one."
    ),
    "model.unknown": "A model that a provider's list lacks is 404 on every wire, and no upstream is asked for it.",
    "model.efforts": "The list of models says which reasoning efforts a model takes; the page offers these.",
    "sub.thought": "An answer says for how long the model wrote its reasoning, measured once by the server.",
    "model.demo-marked": (
        "Demo models are marked in every list, and left out once a real provider lists a model, unless asked for."
    ),
    "model.default-set": "A default model that is set may be an agent, and has to be there.",
    "model.found-default": (
        "A server found on this machine is never the default of a server that needs a key, and never takes over a "
        "default that is in use; one of another user of the machine is not taken in."
    ),
    # thinking
    "think.every-source": (
        "A leading <think> block is reasoning whoever wrote it: providers of every dialect, agents, generators of "
        "strings, panes. It is in no partial, and no model is shown it again."
    ),
    "think.switch": "A source, an agent or a provider that means the tags says so, and keeps them.",
    # truth, on every surface, streaming and not
    "legs.joined": (
        "An answer that breaks off is gone on with by another call, without a word twice or missing: at most three "
        "calls, none behind a tool call, and none whose text does not fit."
    ),
    "legs.told": "Where another call went on, by which model, how and why, is stored and told on every wire.",
    "fork.exact": (
        "For every event of a log another answer begins with exactly what was said up to there, and any model goes on; "
        "the first answer stays as it was."
    ),
    "fork.edited": "A fork with a changed text goes on from it, and is marked as edited by a person.",
    "fork.steps": "An agent is forked where a step has ended: recorded results are used, no call is made again.",
    "fork.refused": "A place where nothing can go on is refused with the reason and the next place; nothing is left.",
    "versions.edit": (
        "An answer that a person edits is another version, marked as edited in every view and export; models see it."
    ),
    "versions.thumbs": "A vote on an answer counts for its model in the scores, and goes with its chat.",
    "versions.delete": "A message is left out of a chat as a branch without it, which can be undone.",
    "legs.chosen": "Whether an answer is gone on with is chosen by the request, the model and the kind of client.",
    "legs.spent": "Usage and cost are those of all calls, and budgets hold across them.",
    "legs.crash": "A detached run whose server dies goes on in the next process.",
    "legs.agents": "A model call of an agent that breaks off is gone on with, and its tools are called once.",
    "wait.limits": "How long a model may be silent is its own limit, which grows with the prompt of a local one.",
    "truth.completed": "An answer that ended by itself is completed.",
    "truth.no-answer": (
        "An answer with neither text nor a tool call has failed, reasoning or not, unless it follows a tool's result, "
        "goes on with a text, or may be empty by a stop sequence."
    ),
    "truth.length": "An answer cut at the length limit says so.",
    "truth.content-filter": "An answer cut by a content filter says so.",
    "truth.raise": "A source that raises is a failure.",
    "truth.failed-result": "A source that says it failed is a failure.",
    "truth.last-word": (
        "The last word of a source counts, and a failure wins: one that says it finished and then raises, or says that "
        "it failed, has failed; one that is stopped while it goes on after its finish is stopped."
    ),
    "truth.logged": "Every exception of a source is in the log, with its run and without secrets.",
    "truth.in-band-error": "An error inside U's stream is a failure.",
    "truth.cut": "A cut connection is a failure.",
    "truth.eof": "An end without a finish reason is no success.",
    "truth.stall": "Silence beyond the idle limit is a failure.",
    "truth.deadline": "A run beyond its deadline is a failure.",
    "truth.no-error-text-in-content": "No error text is ever content.",
    "truth.asked-once": "A request that an upstream may have read is not sent again: the run fails, and says why.",
    "net.compressed": (
        "No compression is asked of an upstream. gzip and deflate are decoded all the same, within the limits of an "
        "answer; another encoding is refused by name."
    ),
    "net.redirects": (
        "A redirect of a model list is followed on the same origin; elsewhere it is told, and no key is sent there."
    ),
    "net.errors": "An upstream that cannot be reached is told with what failed, and the setting to look at.",
    "net.gateways": (
        "Each provider can have headers, parameters of the URL, a header for its key and a path of its own, Azure's "
        "deployments too; secrets in them are in no error."
    ),
    "upstream.contract": (
        "A provider of any dialect tells an answer exactly, ends it in one way, raises what is no end, and closes its "
        "upstream on a stop: one public suite checks every kind of provider."
    ),
    "upstream.kinds": (
        "A package adds a kind of provider by an entry point; a kind or an option that is not there is refused by name."
    ),
    "truth.whole-answer": "A refusal and a call of any kind reach the client; what cannot be passed on is a failure.",
    "truth.redacted": "No upstream secret is in an error.",
    "truth.clients-see-failure": (
        "A stream that failed after output raises in OpenAI's clients for Python and JavaScript and in the AI SDK, on "
        "chat completions and on responses."
    ),
    # responses
    "resp.events": (
        "Every event of a response comes in OpenAI's order with its own sequence_number from 0, and what is fetched "
        "is what the last event had."
    ),
    "resp.asked": "Input items, tools and parameters reach the model in a chat's words, and nothing else does.",
    "resp.tools": (
        "Tools of any model: functions of a namespace and custom tools come back as they were declared; tools that "
        "OpenAI runs are left out; pictures in outputs are shown to the model."
    ),
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
    "hook.runs": "Webhooks of the operator and of people are told how each run ends, or waits, without its text.",
    "push.once": "Each browser of a person is told once of an end, a failure or a question, by one node, over kill -9.",
    "push.wanted": "Nobody is told of what they have seen on any device, have stopped, or have muted.",
    "push.private": "Only the browser can read a notification, which has text of a chat only if its person chose that.",
    "push.addresses": "Notifications and webhooks of people go to public addresses, or where the operator allows it.",
    "ui.notifications": "A service worker tells what happens, in the person's language; a chat can be muted.",
    "ui.phone": "A chat opens on a phone at the message that was read, by a link that gives no rights.",
    "ui.app": "The page is an app with icons; without a server it says so, and it keeps no file and nothing private.",
    "push.gone": "A subscription that has ended is removed, and another one is told.",
    # busy
    "busy.reject": "A second message may be refused while a run is on.",
    "busy.queue": "A second message may be queued; the queue survives a restart and can be edited.",
    "busy.queue-order": "A queued message can be moved, and sent now in place of the response that is running.",
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
    "hist.pictures": (
        "A picture of a message is kept once by its hash, until the last session that has it is deleted. Sessions and "
        "feeds refer to it; models, exports, imports and forks have it as it was sent."
    ),
    "safe.pictures": (
        "A picture is served to the owner of a session that has it, as a picture and nothing else; a hash opens none."
    ),
    "files.text": (
        "A text file of a message reaches every model whole, with its name. Its encoding is known, not guessed."
    ),
    "files.stored": (
        "An attached file is kept once by its hash, goes with its last session, is in forks, exports and imports, and "
        "is served as a download alone."
    ),
    "files.refused": "A file that no model can read is refused before anything is stored, with what to do.",
    "hist.context": (
        "A session says how many tokens its next request has, and the model's window if somebody has said it."
    ),
    "hist.compaction": (
        "A summary takes the place of earlier messages in what a model is asked. They stay readable; the summary can "
        "be edited and undone, one that broke off stands for nothing, and a chat that is too long can be summarised."
    ),
    "files.too-large": "A picture that is too large is left out of its answer with words, and the rest of it stays.",
    "files.answers": (
        "Pictures of an answer are kept like those of people, shown on every API in its own manner, and the model sees"
        " them again with the next question."
    ),
    "ui.browser-drawn": "Pictures of an answer have a name, are saved by one press, and are there after a reload.",
    "files.form": "A chat completion is asked for by a form with files too, as by the same request in JSON.",
    "files.uploads": (
        "A file can be sent ahead of its message: its type, size, pages and tokens are said, and it is kept for a day. "
        "Only its owner can refer to it."
    ),
    "files.pdf": (
        "A PDF reaches a model as its text, or its pages as pictures, read in a process with limits of time, memory, "
        "pages and output; a model whose API takes PDFs gets it itself."
    ),
    "hist.search-hit": (
        "A search names for each session a message with the words, and its sentence, the words marked, with its place; "
        "a long message is searched to its end."
    ),
    "hist.titles": "A model that the operator chooses titles chats after a response, and never in place of a person.",
    "hist.filing": (
        "Folders, tags and the archive are an owner's own: a list is filtered by them, a search finds archived chats, "
        "and filing is no change of the conversation."
    ),
    "hist.bulk": "Several chats are filed in one call, all or none; of several that are deleted each is reported.",
    "imports.chatgpt": (
        "An export of ChatGPT is imported with branches, files, reasoning, programs and canvases; also the ZIP of 2026."
    ),
    "imports.others": "Exports of Open WebUI and of LibreChat are imported with their branches.",
    "imports.report": (
        "An import says what was found, added, known and refused, and why: never a success without chats. Each chat "
        "comes whole or not at all, and none twice."
    ),
    "imports.hostile": "A hostile export is read in a process with limits, and refused with words; it leaves nothing.",
    "hist.run-list": "Runs are listed with their question and chat, and by outcome.",
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
    "crash.no-repeat": "No tool call is repeated by itself, unless it says that this does no harm.",
    "crash.effects": (
        "A tool call has an id that is saved before it runs; an agent that goes on after a crash has no effect twice, "
        "and asks a person where it cannot know."
    ),
    "agent.edited-calls": (
        "A person may change the arguments of a call before it is allowed: it runs with these, and everybody is told."
    ),
    "agent.grants": (
        "What a person has allowed for longer holds for what was said and for nothing else: one chat, a tool, or the "
        "commands that begin with some words. It is listed, and can be revoked."
    ),
    "agent.workspace": (
        "A person sees and saves the files that an agent has written for them, and no others; none is run as a page."
    ),
    "agent.ask-user": (
        "A model may ask its user a question, with choices; the question outlives restarts, and ends in the truth."
    ),
    "mcp.elicitation": "What an MCP server asks reaches the person, and the answer, or its absence, the server.",
    "crash.sigterm": "On SIGTERM new starts get 503 with Retry-After; runs drain, go on later, or settle as partial.",
    "crash.store-away": "With the store gone for 30 s runs go on, settle late, and settle once.",
    "crash.store-fails": "A store that raises an unexpected error fails the runs it cannot save, and no run hangs.",
    "crash.disk-full": "A full disk is a clear failure; nothing acknowledged is lost.",
    "nodes.any": "Stop, steering, approvals and the session feed work through any node; a lost hint only delays them.",
    "nodes.fence": "A paused owner that wakes cannot write.",
    "nodes.takeover": "A dead node's runs are taken over in under 20 s, with the stops that were asked for.",
    "nodes.outage": "After an outage of the store no run is taken from a living node.",
    "nodes.follow": (
        "A reader on another node sees each event once, from the run's owner or from the store; "
        "leaving stops an attached run."
    ),
    "nodes.snapshot": "A snapshot is the same at every node: of a run that goes on, of a pane, and of one that ended.",
    "nodes.list": "An admin sees every server of the store: alive or not, since when, version, address, runs, lease.",
    "nodes.doctor": (
        "`holdfast doctor` finds what is wrong with a PostgreSQL store and the servers that share it, and names the "
        "remedy. It changes nothing."
    ),
    "nodes.serve": (
        "`holdfast serve --nodes` serves one port by several processes: one that dies is started again, the others "
        "answer meanwhile, a signal ends all of them, and the exit code is true."
    ),
    "nodes.demonstration": (
        "`make serve-cluster` starts PostgreSQL, three servers and a proxy; any server can be killed by its id, and "
        "chats are read and continued through the same address."
    ),
    "nodes.deploy": (
        "The files for Kubernetes and Compose are valid: not root, probes on /ready and /health, time to drain, "
        "secrets from outside, and variables that the server knows."
    ),
    "nodes.rollback": "A store that was rolled back gets again what the living owner of a run has shown.",
    # compare
    "cmp.panes": "Two to eight panes run at their own pace; one stops without the others.",
    "cmp.detached": (
        "Detached panes continue when their client leaves, and can be watched from the first word; onlookers hold none."
    ),
    "cmp.rerun": "Panes that did not complete are run again together; those that completed are not asked again.",
    "cmp.stop-all": "All panes stop at once.",
    "cmp.blind": "No byte names a model before the vote.",
    "cmp.vote-once": "A comparison takes one vote.",
    "cmp.failed-pane": "A failed pane is shown failed; it is never fastest, never winner by default.",
    "cmp.reroll-fresh": "A reroll starts fresh.",
    "cmp.sequential": "In sequence, one upstream call is open at a time.",
    "cmp.crash": "A comparison whose server was killed or ended is settled, with the text that was shown.",
    "cmp.scores": "Blind votes between panes that completed give scores, and ratings with intervals.",
    "cmp.synthesis": (
        "A model makes one answer of those of the panes: a run like any other, which says what it is made of and keeps "
        "a blind comparison blind."
    ),
    "cmp.agents": (
        "An agent answers in a pane as a model does, with its steps; its approvals are answered there. A blind pane "
        "does not tell of it, and fails where a person is needed."
    ),
    # batches
    "batch.agents": (
        "An agent answers in a batch. Where a person is needed the cell fails with words, and after a crash no tool "
        "runs twice."
    ),
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
    "wire.anthropic-cache": (
        "Marks of Anthropic's prompt cache reach its own models where they were put, and usage tells what was "
        "read from the cache and written to it."
    ),
    "wire.no-silent-drop": (
        "Each field of a request, at any depth and on every wire, reaches the model, or the answer is the same without "
        "it, or it is refused with a 400 that names it; for every kind of upstream."
    ),
    "resp.compact": (
        "A conversation can be made shorter by its model, and goes on from the summary; half a summary is refused. Its "
        "tokens can be estimated."
    ),
    "resp.websocket": (
        "Responses can be asked for over a WebSocket by the same rules as over HTTP; each ends with one last message, "
        "and a connection continues what is not stored."
    ),
    "resp.conversations": (
        "A conversation has items of its owner's, who can list all of them; a response in it is shown them, and adds "
        "its own once, one response at a time, over a crash too."
    ),
    "resp.steer": (
        "Input that steers a response over the WebSocket is answered by its successor, or returned with the reason; "
        "none is lost in silence."
    ),
    "resp.open-responses": "What each of the 17 checks of Open Responses' suite asks for is there.",
    "safe.websocket": (
        "A connection becomes a WebSocket only if nothing but the handshake was sent; its messages have the limits of "
        "requests, and frames that break the rules end it."
    ),
    "resp.schema": "Every object and event of responses is valid by the types of OpenAI's SDK, but for what is listed.",
    "model.alias": "An alias in the settings is a model's name on every wire, and is listed.",
    "wire.usage": "What an upstream counted of cached and reasoning tokens is told on every wire, in its own words.",
    "wire.openai-schema": (
        "Every object of OpenAI's chats, completions, models and embeddings is valid by the types of its SDK, but for "
        "what is listed."
    ),
    "wire.cost": (
        "If a model has a price, the cost of an answer is told on the wires of OpenAI and Anthropic in the usage, in "
        "the last event of AG-UI, in the last line of Ollama's API, and in the native API; else none is."
    ),
    "wire.ollama": (
        "Programs that speak only Ollama's API chat, generate and list models here; a failure is an error to them, and "
        "never done."
    ),
    "wire.completions": (
        "A prompt is completed by an upstream of OpenAI's dialect as it is, by every other model as a chat, on the "
        "same runs; what a chat cannot do is refused by name."
    ),
    "wire.pass-through": (
        "Calls of OpenAI's API that are no chats are handed to the provider of the model, with its key and its errors; "
        "what is not there is 404 and says what is."
    ),
    "wire.thread": (
        "A conversation that Anthropic's clients leave to the server is whole for the model in every turn; one that is "
        "gone is refused with the code on which they send it again."
    ),
    "wire.own-data": (
        "What only one dialect has (signatures, citations, annotations, blocks of a provider's own tools, the stop "
        "sequence) reaches the clients of that dialect."
    ),
    "wire.orphan-result": (
        "A tool result for which no call waits in the conversation is 400 on chat completions, responses and messages, "
        "and no model is asked."
    ),
    "wire.no-useless-retry": (
        "Every 4xx but 408 and 429 tells the SDKs not to retry, on every wire; what must not be repeated has an error "
        "type that no client repeats, and without streaming a status that the operator chooses."
    ),
    "wire.heartbeat": "A heartbeat is an event of the dialect where it has one, and takes no number of its own.",
    "wire.refused-key": (
        "An upstream that refuses our key or credit is 502, and the same request is refused for some seconds without "
        "asking it again, until the settings of the provider change."
    ),
    # settings
    "set.change": "What is set while the server runs counts for the next run, as a whole, and cuts off no run.",
    "set.test": "A provider can be tested before it is saved, which says what is wrong; its key goes nowhere else.",
    "set.pinned": "What a flag, the environment or the file sets is not changed elsewhere, and it is said where.",
    "set.secrets": "A key that was set is never shown again, and goes to no other address.",
    "set.admin": "Only an admin changes the settings.",
    "set.found": "A local server that starts later is found; one that went away is told as away.",
    "wire.strict-templates": (
        "An upstream that insists on turns gets one system message at the start; a later one is a user's message "
        "in its place. Only OpenAI is sent the role developer."
    ),
    "wire.deterministic": "What was seen of a stream and what is resumed after it are the whole, wherever it was cut.",
    "wire.watch-any": "A run that was started on one wire can be watched on every other and stopped on a third.",
    "wire.ag-ui": (
        "AG-UI's clients get events that the protocol's own types know; RUN_FINISHED says success only for what "
        "completed; a thread is a session, and leaving stops the run."
    ),
    # limits and safety
    "safe.key": "Without the key: 401.",
    "safe.routes": "Every route declares who may call it: anyone, a key, or a key with admin rights. Nobody else can.",
    "safe.key-needed": "Once a key was needed, one is needed until the process ends, also if the last is revoked.",
    "safe.revoked": (
        "A revoked key opens nothing a second later: requests are 401, open answers of every wire end, and the runs "
        "and batches that it has started are stopped by `revoked`, on every node."
    ),
    "safe.key-rights": "Rights belong to a key. No key can be made under the name of an owner that the settings have.",
    "safe.owners": "An owner is one person, one service, one key of the settings file, or the local user.",
    "safe.admins": "No answer to an admin has words of a person, or a secret that acts for one. A reset link is noted.",
    "safe.persons-key": "Nobody but a person gets a secret that acts for the person.",
    "safe.keys-made": (
        "Keys are made and revoked by any process while the server runs, also by root for another user's server; of "
        "many at once none is lost."
    ),
    "safe.keys-unreadable": "Keys that cannot be read for 10 s open nothing: 503, also at `/ready`, and in the log.",
    "safe.wrong-keys": (
        "Wrong keys are logged by address, without the key, and answered slowly after ten in a minute; right ones from "
        "the same address are not. Beyond loopback a key has at least 16 characters, and a cluster key everywhere."
    ),
    "safe.background": (
        "A background task that fails is logged, tried again, and named by `/ready` until it has succeeded."
    ),
    "ops.log": (
        "The log is text or one JSON object for each entry, with the ids of run, session, request and node if they are "
        "known, and levels by module. The access log is off by default, and has no query, header or body."
    ),
    "ops.error-help": (
        "Every error code has a page on the server, with cause and remedy, and every error names it. "
        "`holdfast explain` prints it without a server."
    ),
    "ops.top": "`holdfast top` shows runs, rates, latencies and errors of several servers, live or once for a pipe.",
    "ops.status": (
        "An administrator sees the runs, times and errors of the last minute of every server of the store, in the page "
        "and by `GET /api/nodes`, without metrics."
    ),
    "ops.incidents": (
        "A slow upstream, PostgreSQL away, a full disk, a dead node and a leaked key show in metrics, `/ready`, the "
        "log and `holdfast doctor` as docs/incidents.md says."
    ),
    "ops.config-check": (
        "`holdfast config check` prints all problems of the settings at once, and its exit code tells. It refuses "
        "what a start refuses."
    ),
    "ops.config-init": "`holdfast config init` writes a settings file with every setting, each as a comment.",
    "ops.config-show": "`holdfast config show` prints the settings in use as a settings file, without its secrets.",
    "ops.reload": (
        "A running server takes in its changed settings file by SIGHUP or by a call: all of it, or nothing if it is "
        "invalid. No stream is cut. It says what has changed, and what needs a restart."
    ),
    "ops.metrics": (
        "With metrics on, every run is counted once, by its outcome; times, tokens, store and refusals are measured. "
        "Off, nothing is measured and nothing is loaded."
    ),
    "store.point-in-time": (
        "PostgreSQL's point-in-time recovery gives everything up to a moment and nothing after it; a run that was in "
        "progress then ends as interrupted."
    ),
    "ops.traces": (
        "With `traces` a request, its run, and the upstream calls, tool calls, commits and takeovers of that are spans "
        "of one trace, which continues that of the caller and goes on in upstreams and MCP servers."
    ),
    "ops.traces-content": "Prompts, answers, arguments and results are in no span unless `traces_content` is set.",
    "ops.log-traces": (
        "With traces on, each entry of the log that is written in a request or a run has the ids of its trace and span."
    ),
    "ops.traces-away": "A collector that is away delays no run, and a shutdown by a few seconds at most.",
    "ops.alerts": "Each alert of deploy/ fires in its incident, and none for a server that is well.",
    "ops.dashboard": "Each panel of the dashboard shows metrics that exist.",
    "ops.metrics-wal": (
        "On PostgreSQL the bytes of its write-ahead log and those kept for a replication slot are metrics; without the "
        "right to read them they are absent, and the log says so once."
    ),
    "ops.metrics-bounded": "No name that a caller chose becomes a label: only models that are offered do.",
    "ops.metrics-access": (
        "`/metrics` is for admins; the separate port needs no key, and on loopback answers no foreign Host."
    ),
    "people.first-admin": "The first account is an admin, who keeps what was made before. Then everyone signs in.",
    "people.sign-in": "A person signs in by name or e-mail address, and a sign-in ends for good; refusals look alike.",
    "people.cookie": "A sign-in's cookie is HttpOnly and SameSite=Strict, and counts only for the server's own pages.",
    "people.sign-ins-listed": "A person lists and ends their sign-ins.",
    "people.password": "Weak passwords are refused; another password ends all other sign-ins.",
    "people.reset": "A link of an admin sets a password once, within a day.",
    "people.roles": "Each endpoint has a rule: role, scope, whose things. There is always an admin.",
    "people.rights-change": "Another role, a disabled or deleted account counts within a second, for open streams too.",
    "people.later-work": "Work that starts after its request asks no model if its person may not any more.",
    "people.fresh": "A sign-in that is not fresh makes no keys, exports and ends nothing. A reset revokes keys.",
    "people.last-admin": "Of admins who demote, disable or delete each other at once, one is left.",
    "people.keys": "Keys have scopes, expiry and successors, and never more rights than their person.",
    "people.matrix": "No caller gets past the rule of a route, on any wire and node; what is not theirs is not there.",
    "people.attack.fixation": "A cookie that was planted in a browser never becomes a sign-in.",
    "people.attack.replay": "A token, link or code that has ended or was used is worth nothing, also of two at once.",
    "people.attack.csrf": "No page of another origin changes something with a person's cookie.",
    "people.attack.guessing": "A try is counted before its password is checked: a million guesses take decades.",
    "people.attack.enumeration": "No answer tells which accounts exist.",
    "people.attack.timing": "Every refused sign-in hashes once.",
    "people.attack.names": "No name looks like another's or holds what others could take for markup or a header.",
    "people.attack.flood": "A flood of sign-ins is refused, leaves nothing stored, and holds up no other request.",
    "people.known-browser": (
        "A flood or wrong passwords of strangers keep nobody out of a browser in which the person has signed in before."
    ),
    "people.oidc": "People sign in with an OpenID Connect provider; accounts are linked by issuer and subject alone.",
    "people.oidc.attacks": "An answer counts for one browser, attempt and provider, and leads to no other site.",
    "people.proxy.user": "A header names the person only from a trusted proxy; from elsewhere it is refused.",
    "people.proxy.address": "X-Forwarded-For counts only from a trusted proxy: the right-most address that is none.",
    "people.throttle": "Wrong passwords make the account and the address wait, longer each time.",
    "people.second-factor": (
        "With a second factor a password alone signs nobody in. A code counts once, throttled like a password. The "
        "secret is sealed. Recovery codes count once, and are stored as digests."
    ),
    "people.second-factor-reset": "An admin or a command removes a lost second factor and passkeys, audited, unread.",
    "people.second-factor-required": (
        "Who must have a second factor can do nothing before it is set up. Identity providers and keys need none."
    ),
    "people.passkeys": (
        "A person adds, names and removes passkeys, and signs in with one, by a challenge that counts once, from the "
        "server's own page, after the device has checked the person."
    ),
    "people.sign-ins-limited": "A person has at most 100 sign-ins: one more ends the oldest.",
    # sharing
    "share.live": "A link shows a session, and the answer that is being written as it grows, on any node.",
    "share.run": "A link to a run shows its session up to its answer; a run without a session cannot be shared.",
    "share.fixed": "A link that does not follow its session shows it up to one message, whatever comes later.",
    "share.chosen": (
        "A link shows no other branches and no costs, and tools, reasoning, system prompt and names only if chosen."
    ),
    "share.read-only": "A link lets no one send, stop, steer, approve, or reach anything else.",
    "share.ends": "A revoked or expired link ends its streams within a second, on every node; refusals look alike.",
    "share.disabled": "What a disabled person shares is not there, on any node, until they are enabled again.",
    "share.token": "A link's token is stored as a digest only, and is in no log.",
    "share.limits": "A link has a bounded number of readers at once.",
    "share.page": (
        "Links are made, listed and revoked in the page, and read live in a page of their own: any language, axe clean."
    ),
    "share.group": "A group reads a session that is shared with it, or writes in it; messages name their writer.",
    "share.group-limits": "Only the owner deletes, renames or shares a session, and runs agents in it.",
    "share.group-ends": "Leaving the group, or the end of the share, ends access and open streams within a second.",
    "seen.cursor": "What a person has seen of a session is one cursor on all devices; it only moves forward.",
    "presets.kept": "Presets and prompts are kept under a name that is unique for its owner, who alone changes them.",
    "presets.group": "A group uses what a member shares with it, until the member leaves or takes it back.",
    "presets.used": "A chat takes model, system prompt and parameters from a preset, and says from which.",
    "presets.file": "Presets and prompts are exported and imported as a file; the report says what became of each.",
    "ui.schedules": (
        "Schedules and triggers are made, run, paused and looked back at in the page, with the plan in words and its "
        "next times; by keyboard, on phones, in every language."
    ),
    "ui.presets": "Presets are chosen where the model is, and prompts typed after a slash, by keyboard and on phones.",
    "cli.output": "A response is written to a file once it is complete, with its pictures beside it, or not at all.",
    "cli.files": "`run` and `chat` attach files, and say first what they are; `chat` compacts its session.",
    "cli.presets": "The command line uses, lists, adds, removes and moves presets and prompts.",
    # schedules
    "cli.schedules": "The command line adds, lists, tries, pauses, runs and removes schedules and triggers.",
    "schedules.kept": (
        "A schedule is kept, changed, paused and deleted by its owner alone. A bad one is refused with words, and a "
        "preview tells the next times."
    ),
    "schedules.once": (
        "Each time of a schedule has one run, on any number of nodes, with crashes, clocks that jump, and both changes "
        "of daylight saving. What was missed is skipped, made up once, or made up each, and the run says so."
    ),
    "schedules.rights": (
        "The rights and the budget of the owner count when a run starts. A refusal is in the history with its reason."
    ),
    "triggers.secret": (
        "A call of a trigger needs its secret, in the address or by a signature. It is shown once, and kept out of "
        "logs, exports and the audit log."
    ),
    "triggers.once": "A repeated call of a trigger starts nothing more; an old signed one is refused.",
    "triggers.prompt": "What a call sends is filled into the prompt of the trigger, within limits of size and rate.",
    "people.audit": (
        "The audit log has who did what to what, from where, with which result: sign-ins and failures, keys, accounts, "
        "settings, deletions, approvals, and what admins read about others; by HTTP and by command."
    ),
    "people.audit-contents": "The audit log has ids: no contents, names, e-mail addresses or secrets.",
    "people.audit-keys": "Refused keys reach the audit log, counted by address, reason and minute: no one can fill it.",
    "people.audit-all": "Every call of admins and every change of an account is audited, under its path at least.",
    "people.audit-export": "The audit log is read by actor, action and time, and exported as lines with a cursor.",
    "people.audit-refuses": "If the audit log cannot be written, what belongs there is refused and changes nothing.",
    "people.audit-verify": "A changed, removed or cut-off entry of the audit log is found by `holdfast audit verify`.",
    "people.audit-retention": "Entries are deleted only because of their age, and the log says which.",
    "people.export": "A person exports all that they have in one archive, and nothing of others.",
    "people.import": "An archive's chats and comparisons come in with new ids, once, all or nothing.",
    "people.delete": (
        "A person is deleted with everything, by themselves or an admin who chose so: running runs are stopped, no "
        "table has their words, and a crash does not end it."
    ),
    "people.retention": "Chats neither changed nor imported for `session_days` are deleted; pinned ones stay.",
    "people.retention-groups": "A group sets how long chats and runs of its people are kept; the fewest days count.",
    "people.retention-keys": "Idempotency keys are forgotten `idempotency_days` after the end of their run.",
    "people.nothing-stored": "A request without a session, or with `store: false`, leaves nothing on the disk.",
    "safe.bind": "Beyond loopback, without keys and accounts, a server answers only who has the code that it printed.",
    "safe.origin": "A foreign Origin is refused.",
    "safe.host": "A foreign Host is refused, and so are two of Host, Origin, Authorization or X-Api-Key.",
    "safe.owner-404": "What belongs to someone else is 404.",
    "safe.agent-users": (
        "An agent that a caller may not use is on no list and 404 wherever a model can be named; one that can write or "
        "run something is for admins unless the settings name others; a run that starts later has its owner's rights."
    ),
    "safe.agent-owners": (
        "What an agent's files hold, and what an MCP server keeps, of one owner is not shown to another, unless the "
        "settings say that they share it."
    ),
    "safe.tool-environment": (
        "Processes of tools have an allow-list of the server's environment and what the settings name; those that the "
        "server starts for itself have an allow-list too; other processes of the server's user cannot read its own."
    ),
    "safe.grant-saved": "An approval for longer than once is answered with 200 only when its grant is saved.",
    "safe.post-only": "Nothing changes by GET.",
    "safe.one-request": (
        "Where a request ends is decided by its length alone: no header that offers another protocol, no header inside "
        "a body or a trailer, and no way to cut the bytes makes one request two, or a part of another."
    ),
    "safe.head-limit": "The head or the trailers of a request above 64 KiB: 431, and what follows is not looked at.",
    "safe.head-time": "A head that does not arrive in time: 408 and closed; a connection that says nothing is closed.",
    "safe.body-pace": "A body that does not arrive at a pace: 408 and closed; nothing was started.",
    "safe.connection-limit": (
        "Connections above the limit, of all and of one address, are refused; those that are open go on as before, and "
        "the server never runs out of files for them."
    ),
    "api.compressed": (
        "Answers under /api longer than a packet are sent as zstd or gzip to clients that take it; event streams never."
    ),
    "safe.private-answers": (
        "No answer of the API but a picture may be cached; none is taken for another type, or embedded by another site."
    ),
    "safe.ready": "/ready finds out at once that the store cannot write; it tells runs only where no key is needed.",
    "safe.run-limit": "Above the limit of runs: 429 with Retry-After.",
    "safe.body-limit": "A body above the limit is refused before it is read.",
    "safe.body-values": (
        "A body with millions of values is refused before objects are made of it, and large bodies take turns with "
        "other requests; a long text is one value, whatever characters it has."
    ),
    "safe.lists-short": (
        "Lists carry no system prompts, no parameters and no long texts. The system prompt and the parameters of a "
        "session have a limit."
    ),
    "safe.patterns": (
        "The patterns of a batch have a limited length, and a limited time to be compiled; work that a client asks for "
        "delays no stop, and no answer to others."
    ),
    "safe.retention": (
        "Ended runs outside of sessions are deleted after `retention_days`, and conversations of responses that were "
        "not changed for so long; 0 means at once, not never."
    ),
    "safe.answer-limit": "U's answer may have 64 MB of text, and an event of it 8 MB: more is a failure that says so.",
    "safe.upstream-headers": "U's headers, trailers and chunk extensions have a limit; a trailer is no header.",
    "safe.proxy-secret": "The user and password of a proxy reach the proxy alone: no log, error, answer or page.",
    "safe.sse-injection": "Newlines in data, id or event forge no frame.",
    "safe.markdown": "Markdown runs no script and loads no remote image without consent.",
    "safe.page-time": "The page reads any text in time that grows with its length and no faster, and loses none of it.",
    "safe.redos": "The think splitter and the parsers take linear time.",
    "safe.settings-file": (
        "A settings file counts only if it was named or nobody else can write it; one in the current folder for "
        "`serve`, which names it first, and for `config check` and `config show`."
    ),
    "safe.data-folder": (
        "No link in the data folder is followed. A folder that belongs to another user, or that others can write to, "
        "is refused, with what to do. What root makes there belongs to the folder's owner."
    ),
    "safe.one-server": "A second server never starts on a data folder, also if the lock file was deleted.",
    "safe.restore": "A database that is empty or lost its file is refused: a failed restore never starts empty.",
    "safe.key-address": (
        "The command line sends a key only to an address that was named, or through the socket in the user's own data "
        "folder; never to whoever listens on a port, nor after a redirect."
    ),
    "safe.terminal": (
        "No text of a model, a server, an upstream or a setting reaches the terminal with a control character, or with "
        "one that turns the direction; JSON escapes them."
    ),
    "safe.log": "No text of others can look like an entry of the server's log, or hold a control character there.",
    "safe.history-file": "The chat's history file can be read by its user only, and is not written through a link.",
    "safe.whole-call": (
        "A call can be allowed only when all of it was shown, in the terminal and in the browser, with every invisible "
        "character as an escape."
    ),
    "cli.drawn": (
        "On a terminal a response is drawn from its Markdown as it arrives, with its figures; a pipe has its text."
    ),
    "cli.client-key": (
        "The command line sends the key of `HOLDFAST_CLIENT_KEY`; a server's own `api_key` goes to the server on its "
        "data folder alone."
    ),
    "cli.misspelt": (
        "A variable `HOLDFAST_…` that is no setting, and a command that does not exist, are refused, with the name "
        "that was probably meant."
    ),
    "model.default-providers": (
        "A provider in the settings file takes away neither the demo providers nor those of keys in the environment, "
        "unless `default_providers` is false."
    ),
    "cli.run-alone": "`holdfast run` keeps a session only if it is asked to; the run itself is kept.",
    "nodes.races": (
        "Two nodes that change a session at the same moment: one running run, one run for an idempotency key, one "
        "settlement, no number of the feed given twice."
    ),
    "nodes.fence-waits": "A node that takes over a run waits for appends that are under way; later ones are refused.",
    "nodes.store-away": (
        "PostgreSQL killed, cut off or silent: calls fail with store_unavailable and can be repeated; nothing that was "
        "acknowledged is lost."
    ),
    "nodes.work": (
        "A batch, a delivery of a webhook, a round of a comparison and a chore is worked on by one node at a time; "
        "another takes it over, and every node can read and stop it."
    ),
    "nodes.settings": (
        "Settings of the page, keys and grants that are changed or revoked through one node count on every node within "
        "a second, open streams included; keys of providers are encrypted in the store."
    ),
    "nodes.drain": (
        "A node that ends says so and takes no new runs; what waits, and what another node can go on with, is handed "
        "over at once; the rest is drained and settled, and others need not wait for the end of its lease."
    ),
    "nodes.versions": (
        "Servers of two versions share the tables while they are upgraded one after the other; a step that older ones "
        "cannot work with waits until they are stopped."
    ),
    "nodes.tls": (
        "Nodes speak TLS 1.3 with certificates made from the cluster key: nobody without it asks, answers or reads, "
        "or keeps other nodes out."
    ),
    "nodes.unstored": (
        "With a cluster key, a run that is not stored is read and stopped through any node while its own node has it; "
        "if that node is gone, no reader is told of a success."
    ),
    "nodes.limits": "`max_runs`, `max_runs_per_owner` and `starts_per_minute` count the runs of all nodes.",
    "nodes.interrupt": "A message that interrupts the run of another node comes before the queued ones.",
    "nodes.needs-approval": "Lists of every node say which run waits for a person.",
    "nodes.port-taken": "A port for other servers that is taken is reported in one line, with what to do.",
    "nodes.progress": "Every node sends the progress of a batch.",
    "nodes.history": (
        "What clients of any node were answered is what every node keeps, whatever fails: no gap, no repeat, one "
        "ending, an answered stop stands, an accepted message is there once."
    ),
    "nodes.hints": "The connection for hints comes back by itself, and what may have been lost is looked for.",
    "safe.store-password": "A password in the address of the store is in no log, error or page, nor in `config show`.",
    "store.copy": (
        "`holdfast copy` moves everything between SQLite and PostgreSQL, continues after an interruption, compares "
        "both, and refuses a target that has something else. Until it is complete, the target cannot be used."
    ),
    "store.backup": (
        "`holdfast backup` of a running server holds chats, runs, keys, settings and agents' files, and `holdfast "
        "restore` brings all of them back, row by row. It is read back when it is made. What is no backup, or has "
        "changed since, is refused and leaves no database."
    ),
    "store.upgrade": (
        "What a version stored is served by the next one, with its keys. A dry run names the steps of the schema and "
        "changes nothing."
    ),
    "store.damaged-rows": "A row that cannot be decoded is shown as unreadable, hides no other; `db check` names it.",
    "store.too-new": "A database of a newer version is refused on every store, with both ways out of it.",
    "release.agreed": "A release whose version, changelog and tag disagree is refused, with what to change.",
    "release.reproducible": "Two builds of one commit give the same wheel, sdist and components, byte by byte.",
    "release.components": "A release lists its components in CycloneDX: every locked package with every hash.",
    "release.wheel-alone": (
        "The wheel, installed alone in an empty environment at locked versions, serves the page, the API and a model."
    ),
    "deploy.image": (
        "The image runs as a user without rights, on a read-only root, from locked packages only, and its health check "
        "tells whether the server is ready."
    ),
    "deploy.units": "systemd understands the units of the service and of its nightly backup, which is a real one.",
    "cli.short-ids": (
        "Every command takes the unambiguous beginning of an id of the caller's own things. An ambiguous one is "
        "refused with the candidates, and nothing is done."
    ),
    "safe.own-server": "A server that a command brings along has no port: nobody else on the machine can use it.",
    "safe.secrets": "No key in logs, errors, exports or the page.",
    "safe.sealed": (
        "Kept secrets are encrypted with AES-256-GCM, each bound to its name and version. Two keys open at once, for a "
        "rotation. A lost key names what is lost, and a command gives it up. A backup has no secret in clear, and not "
        "the key. What an earlier version kept in clear is sealed at the first start."
    ),
    # the browser
    "ui.page": "The page answers at all its addresses, without a key, under a strict policy, from its own files only.",
    "ui.build": "The committed files of the page are what its source builds to, byte by byte.",
    "ui.browser-chat": (
        "In a real browser: the page's text is the log's; stop, reload, tabs in step, a killed server and a lost "
        "network lose and repeat no word."
    ),
    "ui.browser-back": (
        "In a real browser: a page that comes back finds a dead connection at once, and loses no word."
    ),
    "ui.browser-context": (
        "The page shows how full a known window is. A chat is compacted by button, command, or by itself; the summary "
        "stands below a quiet line, and can be undone. A message that was too long is sent again with one press."
    ),
    "ui.browser-files": (
        "Files are attached by button, drop and paste, and measured before they are sent; what the chosen model cannot "
        "take is said. In the transcript a file opens as text, and is saved."
    ),
    "ui.browser-pictures": (
        "A photo of a phone is made small before it is sent. A session fetches its pictures when they are looked at, "
        "once; 8 photos and 2,000 messages open with the bytes of 1.5 s at 10 Mbit/s."
    ),
    "ui.browser-sessions": (
        "In a real browser: sessions are renamed, pinned, searched, exported to the letter; deleted with a way back."
    ),
    "ui.browser-filing": (
        "In a real browser: chats are moved to folders, tagged and archived, alone or several at once, with a way back."
    ),
    "ui.browser-import": "In a real browser: an export of another program is imported, with its progress and a report.",
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
    "ui.browser-approvals": (
        "In a real browser: a call is readable before it is allowed, a chat that waits for approval says so "
        "everywhere, and what was allowed can be revoked."
    ),
    "ui.browser-everyday": (
        "In a real browser: nothing covers a button, nobody's words are put into the user's mouth, and what one does "
        "every day is one press away."
    ),
    "ui.browser-language": "In a real browser: the page speaks the language that was chosen, in its own direction.",
    "ui.browser-accounts": (
        "In a real browser: people sign in and come back to where they were; passwords, sign-ins, keys, people and "
        "groups are changed in the page; who is disabled or signed out sees nothing any more."
    ),
    "ui.words": "Every language of the page has every word, and no word of the page stands anywhere else.",
    "ui.browser-temporary": (
        "In a real browser: a temporary chat is only in its tab, is lost only after a question, and leaves no word "
        "anywhere."
    ),
    "ui.browser-smooth": "In a real browser: a long answer and a long session are drawn without blocking the page.",
    "access.models": (
        "A model that a key or the groups of a person do not allow does not exist for the caller: in no list, as no "
        "default, behind no alias and as no fallback."
    ),
    "access.agents": "An agent whose tools write or run is for admins, and for those whom a group or `users` names.",
    "budget.stop": "A run that crosses a budget is stopped in the middle of its answer; its text is kept.",
    "budget.refuse": "With a spent budget a start is refused with 429, Retry-After, and what is left in headers.",
    "budget.count": "What a run has used counts once, for its owner, key and groups: on any node, after any crash.",
    "budget.nodes": "Runs on several nodes overspend a budget by one segment each at most.",
    "budget.set": "An admin sets budgets of people, keys and groups; the settings have one for everyone else.",
    "budget.limits": "Runs at once, requests a minute and bytes stored are limited on all nodes together.",
    "budget.bytes": "The bytes that an owner has stored are a counter that is equal to a recount after any writes.",
    "budget.price": (
        "A model has one full name, price and rights, whatever a client writes; without a price it is refused under a "
        "budget of money."
    ),
    "budget.usage": "Usage is shown by owner, key, model and day, as JSON and CSV: the own to everyone, all to admins.",
}

# Promises whose capability is not in this release yet. An id leaves this set with the first test that is bound to it.
LATER: frozenset[str] = frozenset({})


def requirement(*ids: str) -> pytest.MarkDecorator:
    """Bind a test to the promises that it proves. An unknown id fails at import."""
    unknown = [id for id in ids if id not in REQUIREMENTS]
    if unknown or not ids:
        raise LookupError(f"not in tests/requirements.py: {', '.join(unknown) or 'no id given'}")
    return pytest.mark.requirement(*ids)
