// The AI SDK's own client against the server: its transports, its `Chat`, `useChat` in a React tree, and its providers.
// Run by tests/e2e/test_node_clients.py, one test for each `test(…)`.

import assert from "node:assert/strict";
import { test } from "node:test";
import { createOpenAI } from "@ai-sdk/openai";
import { Chat, useChat } from "@ai-sdk/react";
import { WorkflowChatTransport } from "@ai-sdk/workflow/client";
import {
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithToolCalls,
  streamText,
  uiMessageChunkSchema,
} from "ai";
import { createElement, StrictMode } from "react";
import { act, create } from "react-test-renderer";
import { stopChat } from "../../../examples/ai_sdk/stop.mjs";

const { SERVER, API_KEY, UPSTREAM } = process.env;
const api = `${SERVER}/api/chat`;
const headers = { Authorization: `Bearer ${API_KEY}` };
const TEXT = "Héllo wörld 🌊";
const REASONING = "I wonder.";
const LONG = 120_000; // milliseconds, as in tests/support/waiting.py
globalThis.IS_REACT_ACT_ENVIRONMENT = true;

const transport = (model, more = {}) => new DefaultChatTransport({ api, headers, body: { model }, ...more });
const call = async (path) => (await fetch(`${api}/${path}`, { headers })).json();
const texts = (message) => message.parts.filter((part) => part.type === "text").map((part) => part.text).join("");
const open = (gate) => fetch(`${UPSTREAM}/_control/gate?name=${gate}`, { method: "POST" });

let chats = 0;
function chatOf(model, more = {}) {
  const ended = [];
  const chat = new Chat({
    id: `node-${process.pid}-${++chats}`,
    transport: transport(model),
    onFinish: (told) => ended.push(told),
    ...more,
  });
  return { chat, ended };
}

const moment = () => new Promise((resolve) => setTimeout(resolve, 10)); // the SDK has nothing to wait for

async function until(condition, pause = moment) {
  const began = performance.now();
  while (!condition()) {
    assert.ok(performance.now() - began < LONG, "it did not happen");
    await pause();
  }
}

async function records(model) {
  const { requests } = await (await fetch(`${UPSTREAM}/_control/requests`)).json();
  return requests.filter((request) => request.model === model);
}

async function chunks(stream) {
  const found = [];
  for await (const chunk of stream) found.push(chunk);
  return found;
}

const ask = (options = {}) => ({
  trigger: "submit-message",
  messages: [{ id: "u1", role: "user", parts: [{ type: "text", text: "Hi" }] }],
  ...options,
});

// @requirement("ui.shape")
test("every part of every ending is one that the SDK's schema takes", async () => {
  const names = ["completed", "think", "tool-call", "length", "content-filter", "in-band-error", "eof", "401", "empty"];
  for (const name of names) {
    const stream = await transport(`up/end:${name}`).sendMessages(ask({ chatId: `schema ${name}` }));
    const found = await chunks(stream);

    assert.equal(found[0].type, "start");
    assert.equal(found.at(-1).type, "finish");
    for (const chunk of found) assert.equal((await uiMessageChunkSchema().validate(chunk)).success, true, chunk.type);
  }
});

// @requirement("ui.shape", "start.text-exact")
test("an answer is a message, and the chat is ready again", async () => {
  const { chat, ended } = chatOf("up/end:split-utf8");
  await chat.sendMessage({ text: "What is the wave?" });

  assert.deepEqual([chat.status, chat.error, texts(chat.lastMessage)], ["ready", undefined, TEXT]);
  assert.deepEqual([ended[0].finishReason, ended[0].isError, ended[0].isAbort], ["stop", false, false]);
  assert.equal(chat.lastMessage.metadata.holdfast.outcome, "completed");
  const kept = await call(chat.id);
  assert.deepEqual(kept.messages.map((message) => message.id), chat.messages.map((message) => message.id));
  assert.deepEqual(kept.messages.map(texts), ["What is the wave?", TEXT]);
});

// @requirement("start.reasoning-apart")
test("reasoning is a part of its own, and done", async () => {
  const { chat } = chatOf("up/end:think");
  await chat.sendMessage({ text: "Hi" });
  const found = chat.lastMessage.parts.filter((part) => part.type === "reasoning");

  assert.deepEqual(found.map((part) => [part.text, part.state]), [[REASONING, "done"]]);
  assert.equal(texts(chat.lastMessage), TEXT);
});

// @requirement("truth.length", "truth.in-band-error", "truth.eof")
test("what did not complete does not look like success", async () => {
  for (const [name, status, reason] of [
    ["length", "ready", "length"],
    ["content-filter", "ready", "content-filter"],
    ["in-band-error", "error", undefined],
    ["eof", "error", undefined],
    ["401", "error", undefined],
  ]) {
    const { chat, ended } = chatOf(`up/end:${name}`);
    const before = (await records(`end:${name}`)).length;
    await chat.sendMessage({ text: "Hi" });

    assert.deepEqual([name, chat.status, ended[0].finishReason], [name, status, reason]);
    if (name !== "401") assert.equal((await records(`end:${name}`)).length - before, 1);
    assert.equal(ended[0].isError, status === "error");
    assert.equal(texts(chat.lastMessage), name === "401" ? "" : TEXT);
    if (status === "error") assert.ok(chat.error.message.length > 10);
  }
});

// @requirement("truth.clients-see-failure")
test("a stream that failed is an error to the SDK's own OpenAI provider, on chat completions and on responses", async () => {
  const openai = createOpenAI({ baseURL: `${SERVER}/v1`, apiKey: API_KEY });
  for (const [api, model] of [
    ["chat", openai.chat],
    ["responses", openai.responses],
  ]) {
    for (const name of ["end:in-band-error", "end:eof", "late-cut"]) {
      const errors = [];
      const { fullStream } = streamText({
        model: model(`up/${name}`),
        prompt: "Hi",
        onError: ({ error }) => errors.push(error),
      });
      const parts = await chunks(fullStream);

      assert.deepEqual([api, name, parts.at(-1).type, parts.at(-1).finishReason], [api, name, "finish", "error"]);
      assert.equal(parts.filter((part) => part.type === "text-delta").map((part) => part.text).join(""), TEXT);
      assert.equal(errors.length, 1, `${api} ${name}`);
      assert.ok(JSON.stringify(errors[0]).includes("upstream_"), JSON.stringify(errors[0]));
    }
  }
});

// @requirement("ui.history")
test("after a failure the chat goes on, with the partial in its history", async () => {
  const { chat } = chatOf("up/end:in-band-error");
  await chat.sendMessage({ text: "Hi" });
  await chat.sendMessage({ text: "Go on." }, { body: { model: "up/echo:after-failure" } });
  const kept = await call(chat.id);

  assert.deepEqual([chat.status, texts(chat.lastMessage)], ["ready", "after-failure"]);
  assert.deepEqual(kept.messages.map(texts), ["Hi", TEXT, "Go on.", "after-failure"]);
  assert.equal(kept.messages[1].metadata.holdfast.outcome, "failed");
});

// @requirement("ui.resume", "gone.detached")
test("a page that was loaded again in mid-stream has the whole message", async () => {
  const { chat: before } = chatOf("up/gated");
  const sending = before.sendMessage({ text: "Hi" });
  await until(() => before.lastMessage?.role === "assistant" && texts(before.lastMessage) === "one ");
  await before.stop(); // the SDK's own: it leaves, and that is all
  await sending;
  const { messages } = await call(before.id);
  const { chat: after } = chatOf("up/gated", { id: before.id, messages });
  const resuming = after.resumeStream();
  await until(() => texts(after.lastMessage) === "one ");
  await open("node");
  await resuming;

  assert.equal(texts(after.lastMessage), "one two");
  assert.deepEqual([after.messages.length, after.status], [2, "ready"]);
  assert.equal((await records("gated")).length, 1);
});

// @requirement("ui.resume")
test("where nothing runs there is nothing to resume", async () => {
  const { chat } = chatOf("up/echo:done");
  assert.equal(await transport("up/m").reconnectToStream({ chatId: chat.id }), null);
  await chat.sendMessage({ text: "Hi" });
  assert.equal(await transport("up/m").reconnectToStream({ chatId: chat.id }), null);
  await chat.resumeStream();
  assert.deepEqual([chat.status, chat.messages.length], ["ready", 2]);
});

// @requirement("ui.stop", "stop.closes-upstream")
test("the stop of the recipe ends the run and the stream", async () => {
  const { chat, ended } = chatOf("up/stopping");
  const sending = chat.sendMessage({ text: "Hi" });
  await until(() => chat.lastMessage?.role === "assistant" && texts(chat.lastMessage) === TEXT);
  const stopped = await stopChat(chat.id, { api, headers });
  await sending;

  assert.equal(stopped.status, 200);
  assert.deepEqual([chat.status, texts(chat.lastMessage), ended[0].finishReason], ["ready", TEXT, "other"]);
  assert.equal(chat.lastMessage.metadata.holdfast.outcome, "stopped");
  assert.equal(chat.lastMessage.parts.at(-1).state, "done");
  for (;;) if ((await records("stopping"))[0].closed_at != null) break;
});

// @requirement("ui.history")
test("regenerate and edit are branches of the session", async () => {
  const { chat } = chatOf("up/echo:one");
  await chat.sendMessage({ text: "First" });
  await chat.regenerate({ body: { model: "up/echo:two" } });
  assert.deepEqual(chat.messages.map(texts), ["First", "two"]);
  const edited = chat.messages[0].id;
  await chat.sendMessage({ text: "Other", messageId: edited }, { body: { model: "up/echo:three" } });
  await chat.sendMessage({ text: "Again", messageId: edited }, { body: { model: "up/echo:four" } });
  await chat.sendMessage({ text: "Next" }, { body: { model: "up/echo:five" } });

  assert.deepEqual(chat.messages.map(texts), ["Again", "four", "Next", "five"]);
  assert.deepEqual((await call(chat.id)).messages.map(texts), ["Again", "four", "Next", "five"]);
});

// @requirement("ui.shape", "ui.history")
test("tools of the page are called, and their results go back", async () => {
  const { chat } = chatOf("up/two-tools", {
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls,
    onToolCall: ({ toolCall }) => {
      const { a, b } = toolCall.input;
      chat.addToolOutput({ tool: toolCall.toolName, toolCallId: toolCall.toolCallId, output: { sum: a + b } });
    },
    transport: new DefaultChatTransport({
      api,
      headers,
      prepareSendMessagesRequest: ({ id, messages, trigger, messageId }) => ({
        body: { id, messages, trigger, messageId, model: messages.length > 1 ? "up/echo:3 and 7" : "up/two-tools" },
      }),
    }),
  });
  await chat.sendMessage({ text: "Add" });
  await until(() => chat.status === "ready" && texts(chat.lastMessage) !== "");
  const kept = (await call(chat.id)).messages[1].parts.filter((part) => part.type === "tool-add");
  const called = chat.lastMessage.parts.filter((part) => part.type === "tool-add");

  assert.deepEqual(
    called.map((part) => [part.toolCallId, part.state, part.input, part.output]),
    [
      ["call_1", "output-available", { a: 1, b: 2 }, { sum: 3 }],
      ["call_2", "output-available", { a: 3, b: 4 }, { sum: 7 }],
    ],
  );
  assert.deepEqual([chat.messages.length, texts(chat.lastMessage)], [2, "3 and 7"]);
  assert.deepEqual(kept.map((part) => part.output), ['{"sum":3}', '{"sum":7}']);
});

// @requirement("ui.start-index")
test("the workflow transport goes on by itself after a cut, at the very part", async () => {
  const lost = [];
  let cuts = 0;
  const cutting = async (url, init) => {
    const response = await fetch(url, { ...init, headers });
    if (cuts++ >= 2) return response;
    lost.push(url);
    if (lost.length === 2) await open("workflow"); // before that there is no end to be read
    const reader = response.body.getReader();
    let left = 3;
    const body = new ReadableStream({
      async pull(controller) {
        const { done, value } = left-- > 0 ? await reader.read() : { done: true };
        if (done) {
          await reader.cancel();
          controller.close();
        } else controller.enqueue(value);
      },
    });
    return new Response(body, { status: response.status, headers: response.headers });
  };
  const workflow = new WorkflowChatTransport({
    api,
    fetch: cutting,
    prepareSendMessagesRequest: ({ id, messages }) => ({ body: { id, messages, model: "up/cut-off" } }),
  });
  const chat = new Chat({ id: "workflow", transport: workflow });
  await chat.sendMessage({ text: "Hi" });

  assert.equal(chat.status, "ready");
  assert.equal(texts(chat.lastMessage), Array.from({ length: 40 }, (_, n) => `t${n} `).join(""));
  assert.equal(lost.length, 2);
  assert.match(lost[1], /\/run_\w+\/stream\?startIndex=\d+$/);
});

// @requirement("ui.start-index")
test("the workflow transport is told how it ended, and asks no more", async () => {
  for (const [name, type] of [["length", "finish"], ["in-band-error", "error"]]) {
    let asked = 0;
    const workflow = new WorkflowChatTransport({
      api,
      fetch: (url, init) => (asked++, fetch(url, { ...init, headers })),
      prepareSendMessagesRequest: ({ messages }) => ({ body: { messages, model: `up/end:${name}` } }),
    });
    const found = await chunks(await workflow.sendMessages(ask({ chatId: `ended ${name}` })));

    assert.deepEqual([asked, found.at(-1).type], [1, "finish"]);
    assert.ok(found.some((chunk) => chunk.type === type));
  }
});

// `useChat` itself, in a tree that React mounts, unmounts and mounts again.

function page(options) {
  const shown = {};
  const Page = () => {
    Object.assign(shown, useChat(options));
    return null;
  };
  let tree;
  return {
    shown,
    mount: () => act(async () => (tree = create(createElement(StrictMode, null, createElement(Page))))),
    unmount: () => act(async () => tree.unmount()),
    until: (condition) => until(() => condition(shown), () => act(moment)), // React shows what is new after each act
  };
}

// @requirement("ui.resume", "ui.stop")
test("useChat with resume and a stop that stops, in one page", async () => {
  const options = { id: `hook-${process.pid}`, resume: true, transport: transport("up/hooked") };
  const said = (shown) => shown.messages.length > 1 && texts(shown.messages.at(-1));
  const first = page(options);
  await first.mount();
  await first.until((shown) => shown.status === "ready");
  await act(async () => void first.shown.sendMessage({ text: "Hi" }));
  await first.until((shown) => said(shown) === TEXT);
  await first.unmount(); // `useChat` calls its own stop here
  const { messages, active_run } = await act(() => call(options.id));
  const second = page({ ...options, messages });
  await second.mount();
  await second.until((shown) => said(shown) === TEXT && shown.status === "streaming");
  await act(() => stopChat(options.id, { api, headers }));
  await second.until((shown) => shown.status === "ready");
  const kept = await call(options.id);
  await second.unmount();

  assert.ok(active_run, "the run went on without the page");
  assert.equal(second.shown.messages.at(-1).metadata.holdfast.outcome, "stopped");
  assert.deepEqual(kept.messages.map(texts), ["Hi", TEXT]);
  assert.equal(kept.active_run, null);
  assert.equal((await records("hooked")).length, 1);
});
