// OpenAI's Agents SDK for JavaScript, on both of its models.

import { Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, setTracingDisabled, tool } from "@openai/agents";
import OpenAI from "openai";
import { ADD_ASKED, CITY_ASKED, City, Sum, add } from "./given.mjs";

setTracingDisabled(true);
const runner = new Runner({ tracingDisabled: true });

function agent(at, model, more = {}) {
  const Kind = at.variant === "chat" ? OpenAIChatCompletionsModel : OpenAIResponsesModel;
  return new Agent({ name: "agent", model: new Kind(new OpenAI({ baseURL: at.v1, apiKey: at.key }), model), ...more });
}

export async function ask(at, model, stream) {
  if (!stream) {
    const result = await runner.run(agent(at, model), at.prompt);
    at.heard(result.finalOutput);
    const { usage } = result.rawResponses[0];
    return { usage: [usage.inputTokens, usage.outputTokens] };
  }
  const result = await runner.run(agent(at, model), at.prompt, { stream: true, signal: at.signal });
  for await (const event of result.toStream())
    if (event.type === "raw_model_stream_event" && event.data.type === "output_text_delta") at.heard(event.data.delta);
  await result.completed;
  return {};
}

export async function tools(at, model) {
  const adds = tool({ name: "add", description: "Add two numbers.", parameters: Sum, execute: (sum) => `${add(sum)}` });
  return (await runner.run(agent(at, model, { tools: [adds] }), ADD_ASKED)).finalOutput;
}

export async function structured(at, model) {
  return (await runner.run(agent(at, model, { outputType: City }), CITY_ASKED)).finalOutput;
}

export async function picture(at, model) {
  const content = [{ type: "input_image", image: `data:image/png;base64,${at.picture}` }];
  await runner.run(agent(at, model), [{ role: "user", content }]);
}
