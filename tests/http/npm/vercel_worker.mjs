// workers-ai-provider in a Worker, over its binding.
import { createWorkersAI } from "workers-ai-provider";
import { steps } from "./vercel_steps.mjs";

export default {
  async fetch(request, env) {
    return Response.json(await steps(createWorkersAI({ binding: env.AI })));
  },
};
