// Anthropic's own JavaScript client against the server. Run by tests/e2e/test_node_clients.py, one test for each `test(…)`.

import assert from "node:assert/strict";
import { test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";

const { SERVER, API_KEY, UPSTREAM } = process.env;
const TEXT = "Héllo wörld 🌊";
const REASONING = "I wonder.";
const messages = [{ role: "user", content: "What is the wave?" }];
const tools = [{ name: "add", input_schema: { type: "object", properties: {} } }];

// As people make it: with its own two retries.
const client = new Anthropic({ baseURL: SERVER, apiKey: API_KEY });
const ask = (model, more = {}) => ({ model, max_tokens: 100, messages, ...more });

async function records(model) {
  const { requests } = await (await fetch(`${UPSTREAM}/_control/requests`)).json();
  return requests.filter((request) => request.model === model);
}

async function caught(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  assert.fail("nothing was thrown");
}

// @requirement("wire.anthropic")
test("anthropic: a message is read whole, and its stream is put together", async () => {
  const whole = await client.messages.create(ask("up/end:think"));
  const stream = client.messages.stream(ask("up/end:think"));
  const blocks = [];
  stream.on("contentBlock", (block) => blocks.push(block.type));
  const streamed = await stream.finalMessage();

  for (const message of [whole, streamed]) {
    assert.deepEqual(
      message.content.map((block) => [block.type, block.text ?? block.thinking]),
      [
        ["thinking", REASONING],
        ["text", TEXT],
      ],
    );
    assert.deepEqual([message.stop_reason, message.usage.output_tokens], ["end_turn", 5]);
  }
  assert.deepEqual(blocks, ["thinking", "text"]);
});

// @requirement("wire.no-silent-drop", "wire.orphan-result")
test("anthropic: the tool runner sends the whole conversation", async () => {
  for (const stream of [true, false]) {
    const before = (await records("two-tools-run")).length;
    const add = { ...tools[0], run: ({ a, b }) => String(a + b) };
    const runner = client.beta.messages.toolRunner(ask("up/two-tools-run", { tools: [add], stream, max_iterations: 2 }));
    for await (const message of runner) if (stream) await message.finalMessage();
    const [first, second] = (await records("two-tools-run")).slice(before).map((request) => request.body);

    assert.deepEqual(second.tools, first.tools);
    assert.deepEqual(
      second.messages.map((said) => [said.role, said.content]),
      [
        ["user", messages[0].content],
        ["assistant", null],
        ["tool", "3"],
        ["tool", "7"],
      ],
    );
  }
});

// @requirement("wire.anthropic")
test("anthropic: tool calls are put together one after the other", async () => {
  const stream = client.messages.stream(ask("up/two-tools", { tools }));
  const blocks = [];
  stream.on("contentBlock", (block) => blocks.push([block.id, block.input]));
  const message = await stream.finalMessage();

  assert.equal(message.stop_reason, "tool_use");
  assert.deepEqual(blocks, [
    ["call_1", { a: 1, b: 2 }],
    ["call_2", { a: 3, b: 4 }],
  ]);
});

// @requirement("wire.anthropic")
test("anthropic: heartbeats do not break it", async () => {
  assert.equal(await client.messages.stream(ask("up/pausing")).finalText(), `${TEXT}!`);
});

// @requirement("wire.anthropic")
test("anthropic: what fails throws, streaming or not, after its text, and is not run again", async () => {
  let text = "";
  const stream = client.messages.stream(ask("up/end:eof")).on("text", (piece) => {
    text += piece;
  });
  const streamed = await caught(stream.finalMessage());
  const whole = await caught(client.messages.create(ask("up/end:eof")));
  const early = await caught(client.messages.create(ask("up/end:400")));

  assert.equal(text, TEXT);
  assert.ok(streamed instanceof Anthropic.APIError);
  assert.deepEqual([whole.status, whole.error.error.code], [406, "upstream_broke"]);
  assert.ok(early instanceof Anthropic.BadRequestError);
  assert.equal((await records("end:eof")).length, 2);
});

// @requirement("wire.anthropic")
test("anthropic: a run that someone else stopped throws and says so", async () => {
  const stream = client.messages.stream(ask("up/hanging"));
  const { response } = await stream.withResponse();
  let text = "";
  stream.on("text", async (piece) => {
    text += piece;
    if (text !== TEXT) return;
    const headers = { Authorization: `Bearer ${API_KEY}` };
    await fetch(`${SERVER}/api/runs/${response.headers.get("x-run-id")}/stop`, { method: "POST", headers });
  });
  const error = await caught(stream.finalMessage());

  assert.ok(error instanceof Anthropic.APIError);
  assert.match(error.message, /stopped_by_user/);
  assert.equal(text, TEXT);
});

// @requirement("wire.anthropic", "gone.attached")
test("anthropic: an abort stops the run", async () => {
  const stream = client.messages.stream(ask("up/aborting"));
  stream.on("text", () => stream.abort());
  await caught(stream.finalMessage());
  let record;
  do record = (await records("aborting")).at(-1);
  while (record?.closed_at == null);

  assert.deepEqual([record.closed_by, record.finished], ["client", false]);
});
