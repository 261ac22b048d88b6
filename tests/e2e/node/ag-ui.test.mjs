// AG-UI's own JavaScript client against the server. Run by tests/e2e/test_node_clients.py, one test for each `test(…)`.
// The client checks the order of events itself, and throws where one comes that may not.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { HttpAgent, verifyEvents } from "@ag-ui/client";

const { SERVER, API_KEY, UPSTREAM } = process.env;
const TEXT = "Héllo wörld 🌊";
const REASONING = "I wonder.";
const headers = { Authorization: `Bearer ${API_KEY}` };
const question = (content = "What is the wave?") => ({ id: randomUUID(), role: "user", content });

function agent(more = {}) {
  return new HttpAgent({ url: `${SERVER}/ag-ui`, headers, initialMessages: [question()], ...more });
}

// How a run ended, as the client's own subscriber is told.
async function run(agent, model, { props = {}, on = {}, ...more } = {}) {
  const told = { runId: null, outcome: null, code: null, threw: null };
  const subscriber = {
    onRunStartedEvent: ({ event }) => void (told.runId = event.metadata.holdfast.run_id),
    onRunFinishedEvent: ({ outcome, event }) => void Object.assign(told, { outcome, event }),
    onRunErrorEvent: ({ event }) => void Object.assign(told, { code: event.code, event }),
    ...on,
  };
  try {
    const result = await agent.runAgent({ forwardedProps: { model, ...props }, ...more }, subscriber);
    return { ...told, messages: result.newMessages };
  } catch (error) {
    return { ...told, threw: error, messages: agent.messages };
  }
}

const said = (messages) => messages.map((message) => [message.role, message.content]);
const stop = (runId) => fetch(`${SERVER}/api/runs/${runId}/stop`, { method: "POST", headers });

// Stops the run when its reader has seen all of the text.
const stopAtTheEnd =
  (runId) =>
  ({ event, textMessageBuffer }) => {
    if (textMessageBuffer + event.delta === TEXT) stop(runId());
  };

async function records(model) {
  const { requests } = await (await fetch(`${UPSTREAM}/_control/requests`)).json();
  return requests.filter((request) => request.model === model);
}

// @requirement("wire.ag-ui")
test("ag-ui: an answer and its reasoning become messages", async () => {
  const { outcome, messages, event } = await run(agent(), "up/end:think");

  assert.equal(outcome, "success");
  assert.deepEqual(said(messages), [
    ["reasoning", REASONING],
    ["assistant", TEXT],
  ]);
  assert.deepEqual([event.usage[0].outputTokens, event.metadata], [5, undefined]);
});

// @requirement("wire.ag-ui")
test("ag-ui: a frontend tool is called, and its result goes on in the thread", async () => {
  const tools = [{ name: "add", description: "Add two numbers.", parameters: { type: "object", properties: {} } }];
  const here = agent();
  const { outcome, event } = await run(here, "up/two-tools", { tools });
  const calls = here.messages.at(-1).toolCalls;
  for (const call of calls) here.addMessage({ id: randomUUID(), role: "tool", toolCallId: call.id, content: "7" });
  const second = await run(here, "up/echo:seven", { tools });

  assert.equal(outcome, "success");
  assert.deepEqual(
    calls.map((call) => [call.id, JSON.parse(call.function.arguments)]),
    [
      ["call_1", { a: 1, b: 2 }],
      ["call_2", { a: 3, b: 4 }],
    ],
  );
  assert.deepEqual(event.outcome.pendingToolCallIds, ["call_1", "call_2"]);
  assert.deepEqual([second.outcome, said(second.messages)], ["success", [["assistant", "seven"]]]);
});

// @requirement("wire.ag-ui")
test("ag-ui: heartbeats do not break it", async () => {
  const { outcome, messages } = await run(agent(), "up/pausing");

  assert.deepEqual([outcome, said(messages)], ["success", [["assistant", `${TEXT}!`]]]);
});

// @requirement("wire.ag-ui")
test("ag-ui: what failed or was cut off is an error, with its text kept", async () => {
  for (const [model, code] of [
    ["up/late-cut", "upstream_broke"],
    ["up/end:length", "length"],
    ["up/end:content-filter", "content_filter"],
  ]) {
    const before = (await records(model.slice(3))).length;
    const { outcome, code: told, messages } = await run(agent(), model);

    assert.deepEqual([outcome, told, said(messages).at(-1)], [null, code, ["assistant", TEXT]]);
    assert.equal((await records(model.slice(3))).length - before, 1);
  }
  const early = await run(agent(), "up/end:500");
  assert.deepEqual([early.outcome, early.code], [null, "upstream_error"]);
});

// @requirement("wire.ag-ui")
test("ag-ui: a run that someone else stopped is cancelled", async () => {
  let runId;
  const on = {
    onRunStartedEvent: ({ event }) => void (runId = event.metadata.holdfast.run_id),
    onTextMessageContentEvent: stopAtTheEnd(() => runId),
  };
  const { outcome, messages, event } = await run(agent(), "up/hanging", { on });

  assert.deepEqual([outcome, said(messages)], ["cancelled", [["assistant", TEXT]]]);
  assert.equal(event.metadata.holdfast.code, "stopped_by_user");
});

// @requirement("wire.ag-ui", "gone.attached")
test("ag-ui: an abort stops the run", async () => {
  const here = agent();
  await run(here, "up/aborting-ag-ui", { on: { onTextMessageContentEvent: () => here.abortRun() } });
  let record;
  do record = (await records("aborting-ag-ui")).at(-1);
  while (record?.closed_at == null);

  assert.deepEqual([record.closed_by, record.finished], ["client", false]);
});

// What a page does that was loaded again: `connectAgent` reads the run that goes on.
class Connecting extends HttpAgent {
  requestInit() {
    return { method: "GET", headers };
  }
  connect(input) {
    return super.run(input);
  }
}

// @requirement("wire.ag-ui", "wire.watch-any")
test("ag-ui: a page that was loaded again connects to the run and sees all of it", async () => {
  const first = agent();
  const told = { runId: null };
  const running = run(first, "up/connecting", {
    props: { background: true },
    on: { onRunStartedEvent: ({ event }) => void (told.runId = event.metadata.holdfast.run_id) },
  });
  while (!told.runId) await new Promise((resolve) => setTimeout(resolve, 5));
  first.abortRun(); // the page is gone, the run is not
  await running;
  const url = `${SERVER}/ag-ui/${told.runId}?messages=true&protocolVersion=1.0`;
  const second = new Connecting({ url, headers, threadId: first.threadId });
  let outcome = null;
  await second.connectAgent(
    {},
    {
      onTextMessageContentEvent: stopAtTheEnd(() => told.runId),
      onRunFinishedEvent: (ended) => void (outcome = ended.outcome),
    },
  );

  assert.equal(outcome, "cancelled");
  assert.deepEqual(said(second.messages), [
    ["user", "What is the wave?"],
    ["assistant", TEXT],
  ]);
});

// Every event of a run, as the protocol's own verifier passes them on.
function verified(events) {
  const seen = [];
  return new Promise((resolve, reject) =>
    events.pipe(verifyEvents()).subscribe({ next: (event) => seen.push(event.type), error: reject, complete: () => resolve(seen) }),
  );
}

// @requirement("wire.ag-ui")
test("ag-ui: the protocol's verifier passes the events of every ending", async () => {
  const endings = ["completed", "think", "length", "content-filter", "in-band-error", "event-error", "eof", "garbage-json"];
  for (const ending of endings) {
    const messages = [question()];
    const asked = { threadId: randomUUID(), runId: randomUUID(), messages, state: {}, tools: [], context: [] };
    const seen = await verified(agent().run({ ...asked, forwardedProps: { model: `up/end:${ending}` } }));

    assert.equal(seen[0], "RUN_STARTED", ending);
    assert.equal(seen.at(-1), ["completed", "think"].includes(ending) ? "RUN_FINISHED" : "RUN_ERROR", ending);
  }
});
