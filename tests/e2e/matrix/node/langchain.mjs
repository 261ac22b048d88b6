// LangChain's chat models for JavaScript.

import { ChatAnthropic } from "@langchain/anthropic";
import { HumanMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { ChatOllama } from "@langchain/ollama";
import { ChatOpenAI } from "@langchain/openai";
import { ADD_ASKED, CITY_ASKED, City, Sum, add } from "./given.mjs";

const openai = (at, model, more) => new ChatOpenAI({ model, apiKey: at.key, configuration: { baseURL: at.v1 }, ...more });
const MODELS = {
  chat: (at, model) => openai(at, model, { useResponsesApi: false }),
  responses: (at, model) => openai(at, model, { useResponsesApi: true, reasoning: { summary: "auto" } }),
  anthropic: (at, model) => new ChatAnthropic({ model, apiKey: at.key, anthropicApiUrl: at.url, maxTokens: 1000 }),
  ollama: (at, model) =>
    new ChatOllama({ model, baseUrl: at.url, headers: { Authorization: `Bearer ${at.key}` }, think: true }),
};
const chat = (at, model) => MODELS[at.variant](at, model);

export async function ask(at, model, stream) {
  let whole = null;
  if (stream) {
    for await (const chunk of await chat(at, model).stream(at.prompt)) {
      whole = whole ? whole.concat(chunk) : chunk;
      at.heard(chunk.text);
    }
  } else {
    whole = await chat(at, model).invoke(at.prompt);
    at.heard(whole.text);
  }
  const said = { ...whole.response_metadata, ...whole.additional_kwargs };
  const thoughts = whole.contentBlocks.filter((block) => block.type === "reasoning");
  return {
    word: said.finish_reason ?? said.status ?? said.stop_reason ?? said.done_reason,
    usage: [whole.usage_metadata?.input_tokens, whole.usage_metadata?.output_tokens],
    reasoning: thoughts.map((block) => block.reasoning).join(""),
  };
}

export async function tools(at, model) {
  const adds = tool((sum) => `${add(sum)}`, { name: "add", description: "Add two numbers.", schema: Sum });
  const bound = chat(at, model).bindTools([adds]);
  const messages = [new HumanMessage(ADD_ASKED)];
  for (;;) {
    const said = await bound.invoke(messages);
    if (!said.tool_calls?.length) return said.text;
    messages.push(said);
    for (const call of said.tool_calls) messages.push(await adds.invoke(call));
  }
}

export const structured = (at, model) => chat(at, model).withStructuredOutput(City).invoke(CITY_ASKED);

export async function picture(at, model) {
  const url = `data:image/png;base64,${at.picture}`;
  const content = [{ type: "text", text: "What is it?" }, { type: "image_url", image_url: { url } }];
  await chat(at, model).invoke([new HumanMessage({ content })]);
}
