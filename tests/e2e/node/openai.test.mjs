// The official openai-node client against the server. Run by tests/e2e/test_node_clients.py, one test for each `test(…)`.

import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";

const { SERVER, API_KEY, UPSTREAM } = process.env;
const BASE_URL = `${SERVER}/v1`;
const TEXT = "Héllo wörld 🌊";
const REASONING = "I wonder.";
const messages = [{ role: "user", content: "What is the wave?" }];
const tools = [{ type: "function", function: { name: "add", parameters: { type: "object", properties: {} } } }];

const SOON = 15_000; // milliseconds, as in tests/support/waiting.py

// As people make it: with its own two retries.
const client = new OpenAI({ baseURL: BASE_URL, apiKey: API_KEY });

async function records(model) {
  const { requests } = await (await fetch(`${UPSTREAM}/_control/requests`)).json();
  return requests.filter((request) => request.model === model);
}

async function closed(model) {
  for (;;) {
    const last = (await records(model)).at(-1);
    if (last?.closed_at != null) return last;
    await new Promise((resolve) => setTimeout(resolve, 10)); // U says it only when asked
  }
}

async function caught(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  assert.fail("nothing was thrown");
}

async function read(stream) {
  const chunks = [];
  let error = null;
  try {
    for await (const chunk of stream) chunks.push(chunk);
  } catch (thrown) {
    error = thrown;
  }
  const text = chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");
  return { chunks, text, error };
}

// @requirement("start.default-json")
test("an answer is read whole", async () => {
  const completion = await client.chat.completions.create({ model: "up/end:completed", messages });

  assert.equal(completion.choices[0].message.content, TEXT);
  assert.equal(completion.choices[0].finish_reason, "stop");
  assert.deepEqual(completion.usage, {
    prompt_tokens: 3,
    completion_tokens: 5,
    total_tokens: 8,
    prompt_tokens_details: { cached_tokens: 0 },
    completion_tokens_details: { reasoning_tokens: 0 },
  });
  assert.ok(completion._request_id);
});

// @requirement("start.stream-shape", "start.text-exact")
test("a stream is read chunk by chunk, with usage at its end", async () => {
  const stream = await client.chat.completions.create({
    model: "up/end:split-utf8",
    messages,
    stream: true,
    stream_options: { include_usage: true },
  });
  const { chunks, text, error } = await read(stream);

  assert.equal(error, null);
  assert.equal(text, TEXT);
  assert.equal(chunks.at(-1).usage.total_tokens, 8);
  assert.equal(chunks.at(-2).choices[0].finish_reason, "stop");
  assert.equal(new Set(chunks.map((chunk) => chunk.id)).size, 1);
});

// @requirement("start.reasoning-apart")
test("reasoning is an attribute of its own, under both names", async () => {
  const stream = await client.chat.completions.create({ model: "up/end:think", messages, stream: true });
  const { chunks, text } = await read(stream);
  const whole = await client.chat.completions.create({ model: "up/end:think", messages });

  for (const name of ["reasoning", "reasoning_content"]) {
    assert.equal(chunks.map((chunk) => chunk.choices[0].delta[name] ?? "").join(""), REASONING);
    assert.equal(whole.choices[0].message[name], REASONING);
  }
  assert.deepEqual([text, whole.choices[0].message.content], [TEXT, TEXT]);
});

test("tool calls are put together by the SDK", async () => {
  const stream = client.chat.completions.stream({ model: "up/two-tools", messages, tools });
  const streamed = (await stream.finalChatCompletion()).choices[0].message.tool_calls;
  const whole = await client.chat.completions.create({ model: "up/two-tools", messages, tools });

  for (const calls of [streamed, whole.choices[0].message.tool_calls]) {
    assert.deepEqual(
      calls.map((call) => [call.id, call.function.name, call.function.arguments]),
      [
        ["call_1", "add", '{"a": 1, "b": 2}'],
        ["call_2", "add", '{"a": 3, "b": 4}'],
      ],
    );
  }
  assert.equal(whole.choices[0].finish_reason, "tool_calls");
});

// @requirement("start.stream-shape")
test("heartbeats do not break it", async () => {
  const { text, error } = await read(
    await client.chat.completions.create({ model: "up/pausing", messages, stream: true }),
  );

  assert.equal(error, null);
  assert.equal(text, `${TEXT}!`);
});

// @requirement("safe.key")
test("a wrong key throws AuthenticationError", async () => {
  const stranger = new OpenAI({ baseURL: BASE_URL, apiKey: "hf-wrong" });
  const error = await caught(stranger.chat.completions.create({ model: "up/echo:never", messages }));

  assert.ok(error instanceof OpenAI.AuthenticationError);
  assert.deepEqual([error.status, error.code, (await records("echo:never")).length], [401, "unauthorized", 0]);
});

// @requirement("start.early-failure-status")
test("an early failure throws its own type, streaming or not, and the model is asked once", async () => {
  const expected = [
    ["fixed/m", OpenAI.NotFoundError, "model_not_found", 0],
    ["up/end:400", OpenAI.BadRequestError, "upstream_rejected", 1],
    ["up/end:404", OpenAI.NotFoundError, "model_not_found", 1],
    ["up/end:401", OpenAI.InternalServerError, "upstream_auth", 1],
    ["up/end:html-200", OpenAI.InternalServerError, "upstream_broke", 1],
  ];
  for (const [model, kind, code, calls] of expected) {
    for (const stream of [true, false]) {
      const before = (await records(model.replace("up/", ""))).length;
      const error = await caught(client.chat.completions.create({ model, messages, stream, user: `${stream}` }));
      const asked = (await records(model.replace("up/", ""))).length - before;

      assert.deepEqual([model, error.constructor, error.code, asked], [model, kind, code, calls]);
    }
  }
  const empty = await caught(client.chat.completions.create({ model: "up/m", messages: [] }));
  assert.ok(empty instanceof OpenAI.BadRequestError);
  assert.equal(empty.param, "messages");
});

// @requirement("start.early-failure-status")
test("a rate limit throws its own type and is tried again only as often as the client wants", async () => {
  const once = await caught(
    client.chat.completions.create({ model: "up/end:429", messages }, { maxRetries: 0 }),
  );
  assert.ok(once instanceof OpenAI.RateLimitError);
  assert.equal(once.headers.get("retry-after"), "7");
  assert.equal((await records("end:429")).length, 1);

  const twice = await caught(client.chat.completions.create({ model: "up/limited", messages }, { maxRetries: 1 }));
  assert.ok(twice instanceof OpenAI.RateLimitError);
  assert.equal((await records("limited")).length, 2);
});

// @requirement("truth.in-band-error", "truth.eof", "truth.cut", "truth.clients-see-failure")
test("a run that fails in mid-stream throws after its text, and is not run again", async () => {
  for (const [model, code] of [
    ["end:in-band-error", "upstream_error"],
    ["end:eof", "upstream_broke"],
    ["late-cut", "upstream_broke"],
  ]) {
    const stream = await client.chat.completions.create({ model: `up/${model}`, messages, stream: true });
    const { text, error } = await read(stream);
    const whole = await caught(client.chat.completions.create({ model: `up/${model}`, messages }));

    assert.ok(error instanceof OpenAI.APIError);
    assert.deepEqual([text, error.code], [TEXT, code]);
    assert.deepEqual([whole.constructor, whole.status, whole.code], [OpenAI.APIError, 406, code]);
    assert.equal((await records(model)).length, 2); // one run for each of the two requests
  }
});

// @requirement("truth.length", "truth.content-filter")
test("a truncated answer says so and throws nothing", async () => {
  for (const [model, reason] of [
    ["up/end:length", "length"],
    ["up/end:content-filter", "content_filter"],
  ]) {
    const stream = await client.chat.completions.create({ model, messages, stream: true });
    const { chunks, text, error } = await read(stream);

    assert.deepEqual([text, error], [TEXT, null]);
    assert.equal(chunks.at(-1).choices[0].finish_reason, reason);
    assert.equal(chunks.at(-1).holdfast.outcome, "truncated");
  }
});

// @requirement("gone.attached")
test("breaking out of a stream closes the upstream", async () => {
  const stream = await client.chat.completions.create({ model: "up/breaking", messages, stream: true });
  for await (const chunk of stream) if (chunk.choices[0].delta.content) break;
  const left = performance.now();
  const record = await closed("breaking");

  assert.ok(performance.now() - left < SOON);
  assert.deepEqual([record.closed_by, record.finished], ["client", false]);
});

// @requirement("gone.attached")
test("an abort closes the upstream, before the first token and without a stream too", async () => {
  for (const [model, stream] of [
    ["aborting", true],
    ["silent-stream", true],
    ["silent-whole", false],
  ]) {
    const controller = new AbortController();
    const asking = client.chat.completions.create(
      { model: `up/${model}`, messages, stream },
      { signal: controller.signal },
    );
    const settled = asking.then(read).catch((error) => ({ error }));
    while ((await records(model)).length === 0);
    controller.abort();
    const left = performance.now();
    const { error } = await settled;
    const record = await closed(model);

    assert.ok(performance.now() - left < SOON);
    assert.ok(error === null || error === undefined || error instanceof OpenAI.APIUserAbortError);
    assert.deepEqual([record.closed_by, record.finished], ["client", false]);
  }
});

// @requirement("gone.detached")
test("a background run is fetched by its id", async () => {
  const body = { model: "up/tokens:20:5", messages, stream: true, background: true };
  let id;
  for await (const chunk of await client.chat.completions.create(body)) {
    id = chunk.id;
    break;
  }
  const rest = await fetch(`${BASE_URL}/chat/completions/${id}?stream=true&starting_after=1`, {
    headers: { Authorization: `Bearer ${API_KEY}` },
  });
  await rest.text();
  const fetched = await client.chat.completions.retrieve(id);

  assert.equal(fetched.choices[0].finish_reason, "stop");
  assert.equal(fetched.choices[0].message.content, Array.from({ length: 20 }, (_, n) => `t${n} `).join(""));
});
