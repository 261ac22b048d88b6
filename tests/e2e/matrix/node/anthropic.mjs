// Anthropic's client for JavaScript.

import Anthropic from "@anthropic-ai/sdk";
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { ADD_ASKED, CITY_ASKED, City, Sum, add } from "./given.mjs";

const connected = (at) => new Anthropic({ baseURL: at.url, apiKey: at.key });
const asking = (model, content) => ({ model, max_tokens: 1000, messages: [{ role: "user", content }] });

export async function ask(at, model, stream) {
  let message;
  if (stream) {
    const events = connected(at).messages.stream(asking(model, at.prompt));
    for await (const event of events) if (event.delta?.type === "text_delta") at.heard(event.delta.text);
    message = await events.finalMessage();
  } else {
    message = await connected(at).messages.create(asking(model, at.prompt));
    at.heard(message.content.map((block) => block.text ?? "").join(""));
  }
  return {
    word: message.stop_reason,
    usage: [message.usage.input_tokens, message.usage.output_tokens],
    reasoning: message.content.map((block) => block.thinking ?? "").join(""),
  };
}

export async function tools(at, model) {
  const run = async (sum) => `${add(sum)}`;
  const tool = betaZodTool({ name: "add", description: "Add two numbers.", inputSchema: Sum, run });
  const message = await connected(at).beta.messages.toolRunner({ ...asking(model, ADD_ASKED), tools: [tool] });
  return message.content[0].text;
}

export async function structured(at, model) {
  const output_config = { format: zodOutputFormat(City) };
  return (await connected(at).messages.parse({ ...asking(model, CITY_ASKED), output_config })).parsed_output;
}

export async function picture(at, model) {
  const source = { type: "base64", media_type: "image/png", data: at.picture };
  await connected(at).messages.create(asking(model, [{ type: "image", source }]));
}
