// workers-ai-provider over REST: node with_vercel.mjs ADDRESS. Its base address is fixed, and its documented `fetch` moves it.
import { createWorkersAI } from "workers-ai-provider";
import { steps } from "./vercel_steps.mjs";

const base = process.argv[2];
const workersai = createWorkersAI({
  accountId: "local",
  apiKey: "any",
  fetch: (url, init) => fetch(String(url).replace("https://api.cloudflare.com", base), init),
});
console.log(JSON.stringify(await steps(workersai)));
