// The Workers runtime with env.AI behind a node: node with_miniflare.mjs ADDRESS WORKER. Prints what the Worker answers.
import { readFile } from "node:fs/promises";
import { Miniflare } from "miniflare";

const [address, worker] = process.argv.slice(2);
const mf = new Miniflare({
  modules: true,
  script: await readFile(worker, "utf8"),
  compatibilityDate: "2026-04-01",
  ai: { binding: "AI", remoteProxyConnectionString: new URL(address) },
});
const answer = await mf.dispatchFetch("http://localhost/");
console.log(await answer.text());
await mf.dispose();
