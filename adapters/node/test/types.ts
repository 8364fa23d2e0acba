/* Compiled and not run: the types say what the package does, and refuse what it refuses. */

import { createServer } from "node:http";
import express from "express";
import * as verbena from "verbena";

const updates = new verbena.Updates({ timeoutMs: 5_000 });

const app = express();
app.use(verbena.express({ updates, touching: (request: express.Request) => (request.path === "/search" ? null : [`product:${request.query.id}`]) }));
app.get("/", (request, response) => {
  request.verbena.madeOf("products");
  response.send("page");
});
app.post("/", (request, response) => {
  request.verbena.outcome = "not-sent";
  request.verbena.waitUntil(Promise.resolve());
  // @ts-expect-error: there is no such outcome.
  request.verbena.outcome = "perhaps";
  response.send("written");
});

createServer(verbena.announce((request, response) => response.end(request.url), { touching: () => verbena.EVERYTHING }));

export async function job(): Promise<number> {
  const update = await updates.begin("product:7");
  await update.end();
  await updates.purgePages("http://shop.example/");
  // @ts-expect-error: a name is a text.
  await updates.begin([7]);
  try {
    return await updates.around(["a", "b"], async () => 7);
  } catch (error) {
    if (error instanceof verbena.Unconfirmed) return 0;
    throw error;
  }
}
