// What a Worker does with env.AI, each as Cloudflare's documentation has it. Answers one object: what each call came to.
const CHAT = "@fornada/smollm2-135m-instruct";
const messages = [{ role: "user", content: "What is the capital of France? Answer in one sentence." }];

async function failure(call) {
  try {
    await call();
    return null;
  } catch (error) {
    return { name: error.name, message: error.message };
  }
}

const calls = {
  async classifies(env) {
    return await env.AI.run("@fornada/vader", { text: "This pizza is great!" });
  },
  async tells_its_request_s_id(env) {
    await env.AI.run("@fornada/vader", { text: "This pizza is great!" });
    return env.AI.lastRequestId;
  },
  async embeds(env) {
    const embeddings = await env.AI.run("@fornada/minilm", { text: ["This is a story about an orange cloud", "Another one"] });
    return embeddings.shape;
  },
  async generates(env) {
    const answer = await env.AI.run(CHAT, { messages, temperature: 0 });
    return answer.response;
  },
  async streams(env) {
    const stream = await env.AI.run(CHAT, { messages, temperature: 0, stream: true });
    return await new Response(stream, { headers: { "content-type": "text/event-stream" } }).text();
  },
  async gives_the_raw_response(env) {
    const response = await env.AI.run("@fornada/vader", { text: "fine" }, { returnRawResponse: true });
    return { status: response.status, type: response.headers.get("content-type"), id: response.headers.get("cf-ai-req-id") };
  },
  async sends_a_stream(env) {
    const picture = new Response(new Uint8Array([137, 80, 78, 71, 13, 10, 26, 10])).body;
    const form = new FormData();
    form.append("image", new Blob([new Uint8Array(100)]), "picture.png");
    const asForm = new Response(form);
    return [
      await env.AI.run("@contract/image-to-text", { image: { body: picture, contentType: "image/png" }, max_tokens: 5 }),
      await env.AI.run("@contract/image-to-text", { multipart: { body: asForm.body, contentType: asForm.headers.get("content-type") } }),
    ];
  },
  async lists_models(env) {
    const models = await env.AI.models({ search: "vader", per_page: 5 });
    return models.map((model) => [model.name, model.task.name]);
  },
  async hears_of_an_unknown_model(env) {
    const error = await failure(() => env.AI.run("@cf/nope/nope", { prompt: "x" }));
    return { ...error, code: env.AI.lastRequestInternalStatusCode, status: env.AI.lastRequestHttpStatusCode };
  },
  async hears_of_bad_input(env) {
    const error = await failure(() => env.AI.run("@fornada/vader", { words: "x" }));
    return { ...error, code: env.AI.lastRequestInternalStatusCode };
  },
  async hears_of_bad_parameters(env) {
    return await failure(() => env.AI.models({ page: "first" }));
  },
  async talks(env) {
    const response = await env.AI.run("@contract/flux", { encoding: "linear16", sample_rate: "16000" }, { websocket: true });
    const socket = response.webSocket;
    socket.accept();
    const heard = [];
    const over = new Promise((resolve) => {
      socket.addEventListener("message", (message) => heard.push(JSON.parse(message.data).event));
      socket.addEventListener("close", (close) => resolve(close.code));
    });
    for (const level of [0, 9000, 9000, 0]) socket.send(new Int16Array(1600).fill(level).buffer);
    socket.send(JSON.stringify({ type: "CloseStream" }));
    return { status: response.status, code: await over, heard };
  },
  async is_refused_a_talk(env) {
    const response = await env.AI.run("@cf/nope/nope", {}, { websocket: true });
    return { status: response.status, code: (await response.json()).internalCode };
  },
  async turns_files_into_markdown(env) {
    const results = await env.AI.toMarkdown([
      { name: "good.html", blob: new Blob(["<h1>Orange</h1><p>A cloud</p>"], { type: "text/html" }) },
      { name: "odd.xyz", blob: new Blob(["?"], { type: "application/x-odd" }) },
    ]);
    return results.map((each) => [each.name, each.format, each.data ?? each.error]);
  },
  async lists_formats(env) {
    return (await env.AI.toMarkdown().supported()).map((each) => each.extension);
  },
  async goes_through_a_gateway(env) {
    const ask = () =>
      env.AI.run("@fornada/vader", { text: "This pizza is great!" }, { gateway: { id: "default", cacheTtl: 3600 }, returnRawResponse: true });
    const [first, second] = [await ask(), await ask()];
    const id = env.AI.aiGatewayLogId;
    const log = await env.AI.gateway("default").getLog(id);
    await env.AI.gateway("default").patchLog(id, { feedback: 1, score: 100, metadata: { user: "123" } });
    return {
      cached: [first, second].map((each) => each.headers.get("cf-aig-cache-status")),
      same: (await first.text()) === (await second.text()),
      log: [log.provider, log.model, log.success, log.created_at instanceof Date],
      patched: (await env.AI.gateway("default").getLog(id)).feedback,
      url: await env.AI.gateway("default").getUrl("workers-ai"),
    };
  },
  async falls_back_in_a_gateway(env) {
    const entry = (endpoint) => ({ provider: "workers-ai", endpoint, headers: { "content-type": "application/json" }, query: { text: "fine" } });
    const response = await env.AI.gateway("default").run([entry("@cf/nope/nope"), entry("@fornada/vader")]);
    return { status: response.status, step: response.headers.get("cf-aig-step"), success: (await response.json()).success };
  },
  async queues_and_polls(env) {
    const requests = [{ text: "great", external_reference: "one" }, { text: "awful", external_reference: "two" }];
    const { request_id } = await env.AI.run("@fornada/vader", { requests }, { queueRequest: true });
    for (let tries = 0; tries < 600; tries++) {
      const result = await env.AI.run("@fornada/vader", { request_id });
      if (result.responses) return result.responses.map((each) => [each.external_reference, each.success]);
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    return "never done";
  },
};

export default {
  async fetch(request, env) {
    const answers = {};
    for (const [name, call] of Object.entries(calls)) {
      try {
        answers[name] = await call(env);
      } catch (error) {
        answers[name] = `failed: ${error.stack}`;
      }
    }
    return Response.json(answers);
  },
};
