"use strict";
/* The same guest book on Express 4, Express 5, and plain Node; and with the mistake that the documentation warns of. */

const { setTimeout: sleep } = require("node:timers/promises");
const verbena = require("verbena");

/** Between the last statement and COMMIT: what reads in between sees the old row. */
const BEFORE_COMMIT_MS = 20;

/** Rows that a transaction changes at its COMMIT. */
class Rows {
  #committed = new Map();

  read(name) {
    return this.#committed.get(name) ?? "0";
  }

  async write(name, text) {
    await sleep(BEFORE_COMMIT_MS);
    this.#committed.set(name, text);
  }
}

/** `/express5/entry/e1?long` is the entry e1. */
const entryOf = (request) => (request.originalUrl ?? request.url).split("?")[0].split("/").at(-1);
const touching = (request) => [`entry:${request.url.split("/")[1]}:${entryOf(request)}`];

async function bodyOf(request) {
  let text = "";
  for await (const piece of request.setEncoding("utf8")) text += piece;
  return text;
}

/** A handler of Express. */
function entries(express, options) {
  const app = express();
  const rows = new Rows();
  const asText = express.text({ type: "*/*" });
  app.use(verbena.express(options));
  app.get(/.*/, (request, response) => {
    request.verbena.madeOf(...touching(request));
    response.type("text").send(rows.read(entryOf(request)));
  });
  app.post(/.*/, asText, (request, response, next) => {
    rows.write(entryOf(request), request.body).then(() => response.type("text").send("written"), next);
  });
  return app;
}

/** A listener without a framework. It answers a write before COMMIT, and `announce` waits for what it returns. With `?long` the answer is long. */
function plain(options) {
  const rows = new Rows();
  return verbena.announce(async (request, response) => {
    if (request.method !== "POST") {
      request.verbena.madeOf(...touching(request));
      return response.writeHead(200, { "Content-Type": "text/plain" }).end(rows.read(entryOf(request)));
    }
    const text = await bodyOf(request);
    const pieces = [...Array(request.url.includes("long") ? 20 : 0).fill("x".repeat(8192)), "written"];
    // By its length the client knows the whole without the end.
    response.writeHead(200, { "Content-Type": "text/plain", "Content-Length": pieces.join("").length });
    for (const piece of pieces) response.write(piece);
    response.end();
    await rows.write(entryOf(request), text);
  }, options);
}

/** The mistake: the bracket is inside of the transaction, as that of a decorator is. */
function inside(updates) {
  const rows = new Rows();
  return async (request, response) => {
    if (request.method !== "POST") {
      response.setHeader("Verbena-Dependencies", touching(request).map((name) => `"${name}"`).join());
      return response.end(rows.read(entryOf(request)));
    }
    const text = await bodyOf(request);
    let committed;
    await updates.around(touching(request), () => void (committed = rows.write(entryOf(request), text)));
    await committed;
    response.end("written");
  };
}

module.exports = { bodyOf, entries, entryOf, inside, plain, touching };
