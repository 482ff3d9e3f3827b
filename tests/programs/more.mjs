// More programs of npm against a Deskside server: `node more.mjs ADDRESS MODEL`. Prints a line a check; ends with 1 if any failed.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { ChatOpenAI, OpenAIEmbeddings } from "@langchain/openai";
import { tool } from "@langchain/core/tools";
import { Ollama } from "ollama";
import { z } from "zod";

const [address, model] = process.argv.slice(2);
let failures = 0;

async function check(name, run) {
  try {
    await run();
    console.log(`ok      ${name}`);
  } catch (error) {
    failures += 1;
    console.log(`FAILED  ${name}: ${error.stack}`);
  }
}

const question = "What is the weather in Oslo?";
const city = { type: "string", maxLength: 15 };
const parameters = { type: "object", properties: { city }, required: ["city"], additionalProperties: false };
const Cat = z.object({ name: z.string().max(20), legs: z.number().int().min(0).max(8) });
const catSchema = {
  type: "object",
  properties: { name: { type: "string", maxLength: 20 }, legs: { type: "integer", minimum: 0, maximum: 8 } },
  required: ["name", "legs"],
};

// --- @anthropic-ai/sdk
const claude = new Anthropic({ baseURL: address, apiKey: "none" });
const asked = {
  model,
  max_tokens: 80,
  messages: [{ role: "user", content: question }],
  tools: [{ name: "get_weather", description: "Weather of a city.", input_schema: parameters }],
  tool_choice: { type: "tool", name: "get_weather" },
};

function checkUse(message) {
  const uses = message.content.filter((block) => block.type === "tool_use");
  assert.equal(uses.length, 1);
  assert.equal(typeof uses[0].input.city, "string");
  assert.equal(message.stop_reason, "tool_use");
  return uses[0];
}

await check("@anthropic-ai/sdk: streamed text", async () => {
  const stream = claude.messages.stream({ model, max_tokens: 20, messages: asked.messages });
  let text = "";
  stream.on("text", (piece) => (text += piece));
  assert.equal((await stream.finalMessage()).content[0].text, text);
  assert.ok(text);
});
await check("@anthropic-ai/sdk: forced tool and its result", async () => {
  const message = await claude.messages.create(asked);
  const use = checkUse(message);
  const result = { type: "tool_result", tool_use_id: use.id, content: "Snow, -4 degrees." };
  const messages = [...asked.messages, { role: "assistant", content: message.content }, { role: "user", content: [result] }];
  const next = await claude.messages.create({ ...asked, messages, tool_choice: { type: "none" } });
  assert.equal(next.content[0].type, "text");
});
await check("@anthropic-ai/sdk: forced tool, streamed", async () => {
  checkUse(await claude.messages.stream(asked).finalMessage());
});
await check("@anthropic-ai/sdk: tokens and models", async () => {
  const { input_tokens } = await claude.messages.countTokens({ model, messages: asked.messages });
  assert.ok(input_tokens > 0);
  assert.ok((await claude.models.list()).data.some((one) => one.id === model));
});

// --- ollama
const ollama = new Ollama({ host: address });
await check("ollama: streamed text", async () => {
  let text = "";
  const messages = [{ role: "user", content: "Name three colours." }];
  for await (const part of await ollama.chat({ model, messages, stream: true, options: { num_predict: 20 } }))
    text += part.message.content;
  assert.ok(text);
});
await check("ollama: by a schema", async () => {
  const messages = [{ role: "user", content: "Describe a cat." }];
  Cat.parse(JSON.parse((await ollama.chat({ model, messages, format: catSchema })).message.content));
});
await check("ollama: embeddings and models", async () => {
  assert.equal((await ollama.embed({ model, input: ["a", "b"] })).embeddings.length, 2);
  assert.ok((await ollama.list()).models.length > 0);
  assert.ok((await ollama.show({ model })).details);
});

// --- @langchain/openai
const weather = tool(async ({ city: name }) => `Snow in ${name}, -4 degrees.`, {
  name: "get_weather",
  description: "Weather of a city.",
  schema: z.object({ city: z.string().max(15) }),
});
for (const useResponsesApi of [false, true]) {
  const kind = useResponsesApi ? "responses" : "chat";
  const given = { model, apiKey: "none", temperature: 0, maxTokens: 100, useResponsesApi };
  const llm = new ChatOpenAI({ ...given, configuration: { baseURL: `${address}/v1` } });
  await check(`@langchain/openai (${kind}): streamed text`, async () => {
    let text = "";
    for await (const piece of await llm.stream("Name three colours.")) text += piece.text;
    assert.ok(text);
  });
  await check(`@langchain/openai (${kind}): forced tool`, async () => {
    const answer = await llm.bindTools([weather], { tool_choice: "get_weather" }).invoke(question);
    assert.equal(answer.tool_calls.length, 1);
    assert.equal(typeof answer.tool_calls[0].args.city, "string");
  });
  await check(`@langchain/openai (${kind}): structured`, async () => {
    for (const method of ["jsonSchema", "functionCalling"])
      Cat.parse(await llm.withStructuredOutput(Cat, { method, name: "cat" }).invoke("Describe a cat."));
  });
}
await check("@langchain/openai: embeddings", async () => {
  const embeddings = new OpenAIEmbeddings({ model, apiKey: "none", configuration: { baseURL: `${address}/v1` } });
  assert.ok((await embeddings.embedQuery("a cat")).length > 0);
});
process.exit(failures ? 1 : 0);
