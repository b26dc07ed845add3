// OpenAI's own client for Node: node with_openai.mjs BASE_URL. Prints what each step came to.
import OpenAI from "openai";

const CHAT = "@fornada/smollm2-135m-instruct";
const messages = [{ role: "user", content: "What is the capital of France? Answer in one sentence." }];
const client = new OpenAI({ baseURL: process.argv[2], apiKey: "any", maxRetries: 0 });

const completion = await client.chat.completions.create({ model: CHAT, messages, temperature: 0 });

const stream = await client.chat.completions.create({
  model: CHAT,
  messages,
  temperature: 0,
  stream: true,
  stream_options: { include_usage: true },
});
let streamed = "";
let counted = null;
for await (const chunk of stream) {
  streamed += chunk.choices[0]?.delta?.content || "";
  counted = chunk.usage || counted;
}

const tools = [
  {
    type: "function",
    function: {
      name: "get_weather",
      description: "Get current temperature for a given location.",
      parameters: { type: "object", properties: { location: { type: "string" } }, required: ["location"], additionalProperties: false },
    },
  },
];
const called = await client.chat.completions.create({
  model: CHAT,
  messages: [{ role: "user", content: "What is the weather like in Paris today?" }],
  temperature: 0,
  tools,
  tool_choice: "required",
});

const embedding = await client.embeddings.create({ model: "@fornada/minilm", input: "The quick brown fox", encoding_format: "float" });
const packed = await client.embeddings.create({ model: "@fornada/minilm", input: ["one", "two"] });

const names = [];
for await (const model of client.models.list()) names.push(model.id);
const one = await client.models.retrieve(CHAT);

let refused;
try {
  await client.chat.completions.create({ model: "nope", messages });
} catch (error) {
  refused = { name: error.constructor.name, status: error.status, code: error.code, type: error.type };
}

console.log(
  JSON.stringify({
    asks: completion.choices[0].message.content,
    streams: streamed,
    counts: counted,
    calls_tools: called.choices[0].message.tool_calls.map((call) => [call.function.name, JSON.parse(call.function.arguments)]),
    embeds: embedding.data[0].embedding.length,
    embeds_packed: packed.data.map((each) => each.embedding.length),
    lists: names,
    finds: one.id,
    hears_why_not: refused,
  }),
);
