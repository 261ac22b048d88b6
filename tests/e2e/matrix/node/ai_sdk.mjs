// Vercel's AI SDK with each of its providers.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, generateText, stepCountIs, streamText, tool } from "ai";
import { createOllama } from "ollama-ai-provider-v2";
import { ADD_ASKED, CITY_ASKED, City, Sum, add } from "./given.mjs";

const PROVIDERS = {
  chat: (at) => createOpenAI({ baseURL: at.v1, apiKey: at.key }).chat,
  responses: (at) => createOpenAI({ baseURL: at.v1, apiKey: at.key }).responses,
  compatible: (at) =>
    createOpenAICompatible({ name: "holdfast", baseURL: at.v1, apiKey: at.key, supportsStructuredOutputs: true }),
  anthropic: (at) => createAnthropic({ baseURL: at.v1, apiKey: at.key }),
  ollama: (at) => createOllama({ baseURL: `${at.url}/api`, headers: { Authorization: `Bearer ${at.key}` } }),
};
const OPTIONS = { openai: { forceReasoning: true, reasoningSummary: "auto" }, ollama: { think: true } };

const asking = (at, model, prompt) => ({ model: PROVIDERS[at.variant](at)(model), prompt, providerOptions: OPTIONS });
const learnt = (word, usage, reasoning) => ({ word, usage: [usage.inputTokens, usage.outputTokens], reasoning });

export async function ask(at, model, stream) {
  const asked = asking(at, model, at.prompt);
  if (!stream) {
    const whole = await generateText(asked);
    at.heard(whole.text);
    return learnt(whole.finishReason, whole.usage, whole.reasoningText);
  }
  const failed = [];
  const result = streamText({ ...asked, abortSignal: at.signal, onError: ({ error }) => failed.push(error) });
  for await (const text of result.textStream) at.heard(text);
  if (failed.length) throw failed[0];
  return learnt(await result.finishReason, await result.usage, await result.reasoningText);
}

export async function tools(at, model) {
  const adds = tool({ description: "Add two numbers.", inputSchema: Sum, execute: async (sum) => add(sum) });
  const asked = { ...asking(at, model, ADD_ASKED), tools: { add: adds }, stopWhen: stepCountIs(4) };
  return (await generateText(asked)).text;
}

export async function structured(at, model) {
  const asked = asking(at, model, CITY_ASKED);
  return (await generateText({ ...asked, output: Output.object({ schema: City }) })).output;
}

export async function picture(at, model) {
  const { prompt, ...asked } = asking(at, model, "What is it?");
  const content = [
    { type: "text", text: prompt },
    { type: "file", data: Buffer.from(at.picture, "base64"), mediaType: "image/png" },
  ];
  await generateText({ ...asked, messages: [{ role: "user", content }] });
}
