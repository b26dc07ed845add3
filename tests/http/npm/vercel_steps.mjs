// What the Vercel AI SDK's documentation does with a provider of models. Answers one object: what each step came to.
import { embed, embedMany, generateText, streamText, tool } from "ai";
import { z } from "zod";

const CHAT = "@fornada/smollm2-135m-instruct";
const prompt = "What is the capital of France? Answer in one sentence.";

export async function steps(workersai) {
  const { text, usage, finishReason } = await generateText({ model: workersai(CHAT), prompt, temperature: 0 });

  const streamed = streamText({ model: workersai(CHAT), messages: [{ role: "user", content: prompt }], temperature: 0 });
  const pieces = [];
  for await (const piece of streamed.textStream) pieces.push(piece);

  const { embedding } = await embed({ model: workersai.textEmbedding("@fornada/minilm"), value: "sunny day at the beach" });
  const { embeddings } = await embedMany({ model: workersai.textEmbedding("@fornada/minilm"), values: ["one", "two", "three"] });

  const { toolCalls } = await generateText({
    model: workersai(CHAT),
    prompt: "What is the weather in Paris?",
    temperature: 0,
    toolChoice: { type: "tool", toolName: "weather" },
    tools: {
      weather: tool({
        description: "Get the weather in a location",
        inputSchema: z.object({ location: z.string().describe("The location to get the weather for") }),
      }),
    },
  });

  let refused;
  try {
    await generateText({ model: workersai("@cf/nope/nope"), prompt, maxRetries: 0 });
  } catch (error) {
    refused = error.message;
  }

  return {
    generates: text,
    counts: usage,
    finishes: finishReason,
    streams: pieces,
    embeds: embedding.length,
    embeds_many: embeddings.map((each) => each.length),
    calls_tools: toolCalls.map((call) => [call.toolName, call.input]),
    hears_why_not: refused,
  };
}
