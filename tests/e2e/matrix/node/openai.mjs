// OpenAI's client for JavaScript: chat completions and responses.

import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { ADD, ADD_ASKED, CITY_ASKED, City, add } from "./given.mjs";

const connected = (at) => new OpenAI({ baseURL: at.v1, apiKey: at.key });
const says = (content) => [{ role: "user", content }];
const isChat = (at) => at.variant === "chat";

export async function ask(at, model, stream) {
  return isChat(at) ? chat(at, model, stream) : respond(at, model, stream);
}

async function chat(at, model, stream) {
  const asked = { model, messages: says(at.prompt) };
  if (!stream) {
    const whole = await connected(at).chat.completions.create(asked);
    const [choice] = whole.choices;
    at.heard(choice.message.content);
    return {
      word: choice.finish_reason,
      usage: [whole.usage.prompt_tokens, whole.usage.completion_tokens],
      reasoning: choice.message.reasoning_content,
    };
  }
  let [word, reasoning] = [null, ""];
  for await (const chunk of await connected(at).chat.completions.create({ ...asked, stream })) {
    const [choice] = chunk.choices;
    reasoning += choice.delta.reasoning_content ?? "";
    word = choice.finish_reason ?? word;
    at.heard(choice.delta.content);
  }
  return { word, reasoning };
}

async function respond(at, model, stream) {
  const asked = { model, input: at.prompt };
  let whole;
  if (stream) {
    const events = connected(at).responses.stream(asked);
    for await (const event of events) if (event.type === "response.output_text.delta") at.heard(event.delta);
    whole = await events.finalResponse();
  } else {
    whole = await connected(at).responses.create(asked);
    at.heard(whole.output_text);
  }
  const thoughts = whole.output.filter((item) => item.type === "reasoning").flatMap((item) => item.summary);
  return {
    word: whole.status,
    usage: [whole.usage.input_tokens, whole.usage.output_tokens],
    reasoning: thoughts.map((part) => part.text).join(""),
  };
}

export async function tools(at, model) {
  const told = { name: "add", description: "Add two numbers.", parameters: ADD };
  if (isChat(at)) {
    const tool = { type: "function", function: { ...told, parse: JSON.parse, function: (sum) => `${add(sum)}` } };
    return connected(at).chat.completions.runTools({ model, messages: says(ADD_ASKED), tools: [tool] }).finalContent();
  }
  const tool = { type: "function", strict: true, ...told };
  let whole = await connected(at).responses.create({ model, input: ADD_ASKED, tools: [tool] });
  for (;;) {
    const calls = whole.output.filter((item) => item.type === "function_call");
    if (!calls.length) return whole.output_text;
    const input = calls.map((call) => ({
      type: "function_call_output",
      call_id: call.call_id,
      output: `${add(JSON.parse(call.arguments))}`,
    }));
    whole = await connected(at).responses.create({ model, input, tools: [tool], previous_response_id: whole.id });
  }
}

export async function structured(at, model) {
  if (isChat(at)) {
    const format = { response_format: zodResponseFormat(City, "city") };
    const whole = await connected(at).chat.completions.parse({ model, messages: says(CITY_ASKED), ...format });
    return whole.choices[0].message.parsed;
  }
  const format = { text: { format: zodTextFormat(City, "city") } };
  return (await connected(at).responses.parse({ model, input: CITY_ASKED, ...format })).output_parsed;
}

export async function picture(at, model) {
  const url = `data:image/png;base64,${at.picture}`;
  if (isChat(at)) {
    const messages = says([{ type: "image_url", image_url: { url } }]);
    await connected(at).chat.completions.create({ model, messages });
  } else {
    await connected(at).responses.create({ model, input: says([{ type: "input_image", image_url: url }]) });
  }
}
