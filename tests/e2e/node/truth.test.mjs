// The truth table through the JavaScript clients: how each ending looks to a program that uses them, streaming and not.
// Run by tests/e2e/test_node_clients.py, one test for each `test(…)`.

import assert from "node:assert/strict";
import { test } from "node:test";
import { createOpenAI } from "@ai-sdk/openai";
import Anthropic from "@anthropic-ai/sdk";
import { generateText, streamText } from "ai";
import OpenAI from "openai";

const { SERVER, API_KEY, UPSTREAM } = process.env;
const TEXT = "Héllo wörld 🌊";
const messages = [{ role: "user", content: "Hi" }];
const openai = new OpenAI({ baseURL: `${SERVER}/v1`, apiKey: API_KEY });
const anthropic = new Anthropic({ baseURL: SERVER, apiKey: API_KEY });
const provider = createOpenAI({ baseURL: `${SERVER}/v1`, apiKey: API_KEY });

async function chat(model, stream) {
  if (!stream) {
    const [choice] = (await openai.chat.completions.create({ model, messages })).choices;
    return [choice.message.content, choice.finish_reason];
  }
  let [text, word] = ["", null];
  for await (const chunk of await openai.chat.completions.create({ model, messages, stream: true })) {
    text += chunk.choices[0].delta.content ?? "";
    word = chunk.choices[0].finish_reason ?? word;
  }
  return [text, word];
}

async function responses(model, stream) {
  if (!stream) {
    const whole = await openai.responses.create({ model, input: "Hi" });
    return [whole.output_text, whole.status];
  }
  const whole = await openai.responses.stream({ model, input: "Hi" }).finalResponse();
  return [whole.output_text, whole.status];
}

async function claude(model, stream) {
  const asked = { model, max_tokens: 100, messages };
  const message = await (stream ? anthropic.messages.stream(asked).finalMessage() : anthropic.messages.create(asked));
  return [message.content.map((block) => block.text).join(""), message.stop_reason];
}

const aiSdk = (api) => async (model, stream) => {
  const asked = { model: api(model), prompt: "Hi" };
  if (!stream) {
    const whole = await generateText(asked);
    return [whole.text, whole.finishReason];
  }
  const failed = [];
  const result = streamText({ ...asked, onError: ({ error }) => failed.push(error) });
  let text = "";
  for await (const part of result.fullStream) if (part.type === "text-delta") text += part.text;
  if (failed.length) throw failed[0];
  return [text, await result.finishReason];
};

const CLIENTS = { chat, responses, claude, "ai chat": aiSdk(provider.chat), "ai responses": aiSdk(provider.responses) };
const COMPLETED = ["stop", "completed", "end_turn"];

async function each(check) {
  for (const [name, client] of Object.entries(CLIENTS))
    for (const stream of [false, true]) await check(client, stream, `${name}, ${stream ? "stream" : "whole"}`);
}

async function runs(model) {
  const { requests } = await (await fetch(`${UPSTREAM}/_control/requests`)).json();
  return requests.filter((request) => request.model === model).length;
}

// @requirement("truth.clients-see-failure")
test("an answer that completed looks complete", () =>
  each(async (client, stream, name) => {
    const [text, word] = await client("up/end:completed", stream);

    assert.equal(text, TEXT, name);
    assert.ok(COMPLETED.includes(word), `${name}: ${word}`);
  }));

// @requirement("truth.clients-see-failure")
test("an answer that was cut short does not look complete", () =>
  each(async (client, stream, name) => {
    for (const ending of ["length", "content-filter"]) {
      const [, word] = await client(`up/end:${ending}`, stream);
      assert.ok(word && !COMPLETED.includes(word), `${name}, ${ending}: ${word}`);
    }
  }));

// @requirement("truth.clients-see-failure")
test("an answer that failed after text throws, and the model is run once", () =>
  each(async (client, stream, name) => {
    for (const ending of ["in-band-error", "event-error", "eof", "garbage-json"]) {
      const before = await runs(`end:${ending}`);

      await assert.rejects(client(`up/end:${ending}`, stream), undefined, `${name}, ${ending}`);
      assert.equal((await runs(`end:${ending}`)) - before, 1, `${name}, ${ending}`);
    }
  }));

// @requirement("truth.clients-see-failure")
test("an answer that failed before text throws", () =>
  each(async (client, stream, name) => {
    for (const ending of ["400", "401", "404"])
      await assert.rejects(client(`up/end:${ending}`, stream), undefined, `${name}, ${ending}`);
  }));
