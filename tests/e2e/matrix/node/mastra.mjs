// Mastra's agent, with its own way to name an OpenAI-compatible server.

import { Agent } from "@mastra/core/agent";
import { createTool } from "@mastra/core/tools";
import { ADD_ASKED, CITY_ASKED, City, Sum, add } from "./given.mjs";

function agent(at, model, more = {}) {
  const named = { id: `holdfast/${model}`, url: at.v1, apiKey: at.key };
  return new Agent({ id: "agent", name: "agent", instructions: "Answer.", model: named, maxRetries: 0, ...more });
}

export async function ask(at, model, stream) {
  if (!stream) {
    const whole = await agent(at, model).generate(at.prompt);
    at.heard(whole.text);
    const usage = [whole.usage.inputTokens, whole.usage.outputTokens];
    return { word: whole.finishReason, usage, reasoning: whole.reasoningText };
  }
  const result = await agent(at, model).stream(at.prompt, { abortSignal: at.signal });
  for await (const text of result.textStream) at.heard(text);
  if (result.error) throw result.error;
  return { word: await result.finishReason, reasoning: await result.reasoningText };
}

export async function tools(at, model) {
  const execute = async (sum) => ({ sum: add(sum.context ?? sum) });
  const adds = createTool({ id: "add", description: "Add two numbers.", inputSchema: Sum, execute });
  return (await agent(at, model, { tools: { add: adds } }).generate(ADD_ASKED)).text;
}

export async function structured(at, model) {
  return (await agent(at, model).generate(CITY_ASKED, { structuredOutput: { schema: City } })).object;
}

export async function picture(at, model) {
  const image = `data:image/png;base64,${at.picture}`;
  await agent(at, model).generate([{ role: "user", content: [{ type: "image", image, mimeType: "image/png" }] }]);
}
