// The official openai-node client on /v1/responses. Run by tests/e2e/test_node_clients.py.

import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { ResponsesWS } from "openai/resources/responses/ws";

const { SERVER, API_KEY } = process.env;
const TEXT = "Héllo wörld 🌊";
const REASONING = "I wonder.";
const input = "What is the wave?";
const tools = [{ type: "function", name: "add", parameters: { type: "object", properties: {} }, strict: false }];
const client = new OpenAI({ baseURL: `${SERVER}/v1`, apiKey: API_KEY });

async function all(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

// @requirement("resp.events")
test("a response is read whole, and is the same when it is fetched", async () => {
  const whole = await client.responses.create({ model: "up/end:completed", input });
  const fetched = await client.responses.retrieve(whole.id);

  assert.deepEqual([whole.status, whole.output_text, whole.usage.total_tokens], ["completed", TEXT, 8]);
  assert.deepEqual(fetched.output, whole.output);
});

// @requirement("resp.events", "start.reasoning-apart")
test("a response is put together by the stream helper", async () => {
  const thinking = await client.responses.stream({ model: "up/end:think", input }).finalResponse();
  const calling = await client.responses.stream({ model: "up/two-tools", input, tools }).finalResponse();

  assert.equal(thinking.output_text, TEXT);
  assert.equal(thinking.output[0].summary[0].text, REASONING);
  assert.deepEqual(
    calling.output.map((item) => [item.call_id, item.arguments]),
    [
      ["call_1", '{"a": 1, "b": 2}'],
      ["call_2", '{"a": 3, "b": 4}'],
    ],
  );
});

// @requirement("resp.chain")
test("a response follows the one before it", async () => {
  const calling = await client.responses.create({ model: "up/two-tools", input, tools });
  const outputs = calling.output.map(({ call_id }) => ({ type: "function_call_output", call_id, output: "3" }));
  const answered = await client.responses.create({
    model: "up/echo:done",
    input: outputs,
    tools,
    previous_response_id: calling.id,
  });

  assert.deepEqual([answered.output_text, answered.previous_response_id], ["done", calling.id]);
});

// @requirement("resp.background", "resp.cancel")
test("a response in the background is polled and cancelled", async () => {
  let polled = await client.responses.create({ model: "up/pausing", input, background: true });
  while (["queued", "in_progress"].includes(polled.status)) {
    await new Promise((resolve) => setTimeout(resolve, 50));
    polled = await client.responses.retrieve(polled.id);
  }
  const running = await client.responses.create({ model: "up/hanging", input, background: true });
  const cancelled = [await client.responses.cancel(running.id), await client.responses.cancel(running.id)];

  assert.deepEqual([polled.status, polled.output_text], ["completed", `${TEXT}!`]);
  assert.deepEqual(
    cancelled.map((response) => response.status),
    ["cancelled", "cancelled"],
  );
});

// Without heartbeats, which have the number of the event before them.
const numbered = (events) => events.filter((event, at) => event.sequence_number !== events[at - 1]?.sequence_number);

// @requirement("resp.resume")
test("a response is resumed after any event, created in the background or not", async () => {
  for (const background of [true, false]) {
    const stream = await client.responses.create({ model: "up/pausing", input, background, stream: true });
    const events = stream[Symbol.asyncIterator](); // left open: a run that is not in the background would be stopped
    const seen = [];
    do seen.push((await events.next()).value);
    while (seen.at(-1).type !== "response.output_text.delta");
    const { id } = seen[0].response;
    const after = seen.at(-1).sequence_number;
    const rest = await all(await client.responses.retrieve(id, { stream: true, starting_after: after }));
    const whole = await all(await client.responses.retrieve(id, { stream: true }));
    await events.return();

    assert.deepEqual(numbered([...seen, ...rest]), numbered(whole));
    assert.equal(whole.at(-1).type, "response.completed");
  }
});

// @requirement("resp.cancel", "truth.in-band-error", "truth.clients-see-failure")
test("a response that was cancelled or failed is never a completed one", async () => {
  const stream = await client.responses.create({ model: "up/hanging", input, stream: true });
  const seen = [];
  for await (const event of stream) {
    seen.push(event);
    if (event.type === "response.output_text.delta" && seen.length > 5) await client.responses.cancel(seen[0].response.id);
  }
  const failed = [];
  const reading = (async () => {
    for await (const event of await client.responses.create({ model: "up/end:in-band-error", input, stream: true }))
      failed.push(event);
  })();
  await assert.rejects(reading, (error) => error instanceof OpenAI.APIError && error.code === "upstream_error");

  assert.deepEqual([seen.at(-1).type, seen.at(-1).response.status], ["response.cancelled", "cancelled"]);
  assert.equal(failed.filter((event) => event.type === "response.output_text.delta").map((e) => e.delta).join(""), TEXT);
  await assert.rejects(client.responses.create({ model: "up/end:eof", input }), OpenAI.APIError);
  await assert.rejects(client.responses.create({ model: "up/end:400", input, stream: true }), OpenAI.BadRequestError);
});

// @requirement("resp.stored")
test("a response's input is listed, and it can be deleted", async () => {
  const items = ["0", "1", "2"].map((content) => ({ role: "user", content }));
  const made = await client.responses.create({ model: "up/echo:x", input: items });
  const listed = await all(client.responses.inputItems.list(made.id, { limit: 1, order: "asc" }));
  await client.responses.delete(made.id);

  assert.deepEqual(
    listed.map((item) => item.content[0].text),
    ["0", "1", "2"],
  );
  await assert.rejects(client.responses.retrieve(made.id), OpenAI.NotFoundError);
});

// @requirement("resp.websocket")
test("responses are asked for over a websocket, one after the other", async () => {
  const socket = new ResponsesWS(client);
  const said = [];
  try {
    socket.send({ type: "response.create", model: "up/end:completed", input, store: false });
    for await (const event of socket) {
      if (event.type === "error") throw event.error;
      if (event.type !== "message" || event.message.type !== "response.completed") continue;
      said.push(event.message.response.output[0].content[0].text);
      if (said.length === 2) break;
      const previous_response_id = event.message.response.id;
      socket.send({ type: "response.create", model: "up/echo:two", input: "And?", store: false, previous_response_id });
    }
  } finally {
    socket.close();
  }

  assert.deepEqual(said, [TEXT, "two"]);
});
