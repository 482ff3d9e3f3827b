// Programs of npm against a Deskside server: `node clients.mjs ADDRESS MODEL`. Prints a line a check; ends with 1 if any failed.
import assert from "node:assert/strict";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";
import { z } from "zod";

const [address, model] = process.argv.slice(2);
const baseURL = `${address}/v1`;
let failures = 0;

async function check(name, run) {
  try {
    await run();
    console.log(`ok      ${name}`);
  } catch (error) {
    failures += 1;
    console.log(`FAILED  ${name}: ${error.message} ${error.responseBody ?? ""}`);
  }
}

const client = new OpenAI({ baseURL, apiKey: "none" });
const weatherSchema = {
  type: "object",
  properties: { city: { type: "string", maxLength: 15 } },
  required: ["city"],
  additionalProperties: false,
};
const asked = {
  model,
  messages: [{ role: "user", content: "What is the weather in Oslo?" }],
  tools: [{ type: "function", function: { name: "get_weather", parameters: weatherSchema } }],
  tool_choice: { type: "function", function: { name: "get_weather" } },
  max_tokens: 80,
  temperature: 0,
};

function checkCall(message) {
  assert.equal(message.tool_calls.length, 1);
  assert.equal(message.tool_calls[0].function.name, "get_weather");
  assert.equal(typeof JSON.parse(message.tool_calls[0].function.arguments).city, "string");
}

await check("openai: chat", async () => {
  const answer = await client.chat.completions.create({ ...asked, tools: undefined, tool_choice: undefined });
  assert.ok(answer.choices[0].message.content);
});
await check("openai: forced tool", async () => {
  const answer = await client.chat.completions.create(asked);
  assert.equal(answer.choices[0].finish_reason, "tool_calls");
  checkCall(answer.choices[0].message);
});
await check("openai: forced tool, streamed", async () => {
  const stream = client.chat.completions.stream(asked);
  checkCall((await stream.finalChatCompletion()).choices[0].message);
});
await check("openai: responses, streamed", async () => {
  const stream = client.responses.stream({ model, input: "Say hi.", temperature: 0 });
  let text = "";
  for await (const event of stream) if (event.type === "response.output_text.delta") text += event.delta;
  assert.equal((await stream.finalResponse()).output_text, text);
});

const weather = tool({
  description: "Weather of a city.",
  inputSchema: z.object({ city: z.string().max(15) }),
  execute: async ({ city }) => `Snow in ${city}, -4 degrees.`,
});
const prompt = "What is the weather in Oslo?";
const kinds = {
  responses: createOpenAI({ baseURL, apiKey: "none" })(model),
  chat: createOpenAI({ baseURL, apiKey: "none" }).chat(model),
  compatible: createOpenAICompatible({ name: "deskside", baseURL, supportsStructuredOutputs: true })(model),
};
for (const [kind, chosen] of Object.entries(kinds)) {
  await check(`ai (${kind}): text`, async () => {
    const answer = await generateText({ model: chosen, prompt: "Say hi.", maxOutputTokens: 20 });
    assert.ok(answer.text);
    assert.ok(answer.usage.inputTokens > 0);
  });
  await check(`ai (${kind}): streamed text`, async () => {
    const answer = streamText({ model: chosen, prompt: "Name three colours.", maxOutputTokens: 20 });
    let text = "";
    for await (const piece of answer.textStream) text += piece;
    assert.equal(text, await answer.text);
    assert.ok(text);
  });
  await check(`ai (${kind}): object`, async () => {
    const schema = z.object({ name: z.string().max(20), legs: z.number().int().min(0).max(8) });
    const answer = await generateObject({ model: chosen, prompt: "Describe a cat.", schema, maxOutputTokens: 200 });
    schema.parse(answer.object);
  });
  await check(`ai (${kind}): tool and its result`, async () => {
    const answer = await generateText({
      model: chosen,
      prompt,
      tools: { weather },
      prepareStep: ({ stepNumber }) => ({
        toolChoice: stepNumber === 0 ? { type: "tool", toolName: "weather" } : "none",
      }),
      stopWhen: stepCountIs(2),
      maxOutputTokens: 80,
      temperature: 0,
    });
    assert.equal(answer.steps[0].finishReason, "tool-calls");
    assert.match(answer.steps[0].toolResults[0].output, /^Snow in /);
    assert.ok(answer.text);
  });
  await check(`ai (${kind}): streamed tool`, async () => {
    const toolChoice = { type: "tool", toolName: "weather" };
    const answer = streamText({ model: chosen, prompt, tools: { weather }, toolChoice, maxOutputTokens: 80 });
    const calls = await answer.toolCalls;
    assert.equal(calls.length, 1);
    assert.equal(typeof calls[0].input.city, "string");
  });
}
process.exit(failures ? 1 : 0);
