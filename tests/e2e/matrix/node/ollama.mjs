// Ollama's client for JavaScript.

import { Ollama } from "ollama";
import { ADD, ADD_ASKED, CITY, CITY_ASKED, add } from "./given.mjs";

const connected = (at) => new Ollama({ host: at.url, headers: { Authorization: `Bearer ${at.key}` } });
const says = (content) => [{ role: "user", content }];

export async function ask(at, model, stream) {
  const asked = { model, messages: says(at.prompt), think: true };
  if (!stream) {
    const whole = await connected(at).chat(asked);
    at.heard(whole.message.content);
    const usage = [whole.prompt_eval_count, whole.eval_count];
    return { word: whole.done_reason, usage, reasoning: whole.message.thinking };
  }
  let [word, reasoning] = [null, ""];
  const client = connected(at);
  at.signal.addEventListener("abort", () => client.abort());
  for await (const part of await client.chat({ ...asked, stream })) {
    reasoning += part.message.thinking ?? "";
    word = part.done_reason ?? word;
    at.heard(part.message.content);
  }
  return { word, reasoning };
}

export async function tools(at, model) {
  const messages = says(ADD_ASKED);
  const tool = { type: "function", function: { name: "add", description: "Add two numbers.", parameters: ADD } };
  for (;;) {
    const { message } = await connected(at).chat({ model, messages, tools: [tool] });
    if (!message.tool_calls?.length) return message.content;
    messages.push(message);
    for (const call of message.tool_calls)
      messages.push({ role: "tool", tool_name: "add", content: `${add(call.function.arguments)}` });
  }
}

export async function structured(at, model) {
  const { message } = await connected(at).chat({ model, messages: says(CITY_ASKED), format: CITY });
  return JSON.parse(message.content);
}

export async function picture(at, model) {
  await connected(at).chat({ model, messages: [{ role: "user", content: "What is it?", images: [at.picture] }] });
}
