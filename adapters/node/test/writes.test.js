"use strict";
/* Writes that are announced: nothing is stale behind `verbena proxy`. */

const assert = require("node:assert");
const { after, before, test } = require("node:test");
const verbena = require("verbena");
const books = require("./books");
const { PATIENCE_MS, ask, serve, sleep, startProxy, untilWritable } = require("./town");

const ENTRIES = ["e0", "e1", "e2", "e3"];
const apps = {};
let site, proxy;

before(async () => {
  site = await serve((request, response) => apps[request.url.split("/")[1]](request, response));
  proxy = await startProxy(`http://${site.address}`);
  const updates = new verbena.Updates({ place: proxy.helper });
  const options = { updates, touching: books.touching };
  apps.express5 = books.entries(require("express"), options);
  apps.express4 = books.entries(require("express4"), options);
  apps.plain = books.plain(options);
  apps.inside = books.inside(updates);
  await untilWritable(proxy.address, "/express5/entry/e0");
});

after(async () => {
  await proxy?.end();
  await site?.end();
});

/** Each entry's text is a number that grows. A read that begins after a write was answered sees that number or a greater one. */
async function checked(kind, { reads, query = "" }) {
  const told = Object.fromEntries(ENTRIES.map((name) => [name, 0]));
  const counts = { reads: 0, hits: 0, writes: 0, refused: 0 };
  const stale = [];
  let isOver = false;
  const write = async () => {
    for (let number = 1; !isOver; number += 1) {
      for (const name of ENTRIES) {
        const { status, body } = await ask(proxy.address, "POST", `/${kind}/entry/${name}${query}`, String(number), { "Content-Type": "text/plain" });
        if (status !== 200 || !body.toString().endsWith("written")) {
          counts.refused += 1;
          continue;
        }
        told[name] = number;
        counts.writes += 1;
        // Otherwise nothing is ever read twice between two writes.
        await sleep(50);
      }
    }
  };
  const read = async () => {
    while (!isOver) {
      for (const name of ENTRIES) {
        const least = told[name];
        const { status, headers, body } = await ask(proxy.address, "GET", `/${kind}/entry/${name}`);
        counts.reads += 1;
        counts.hits += headers["cache-status"] === "verbena; hit" ? 1 : 0;
        if (status !== 200 || !(Number(body) >= least)) stale.push(`${name}: ${status} ${body} after ${least} was told (${headers["cache-status"]})`);
      }
    }
  };
  const all = Promise.all([read(), read(), read(), write()]);
  const until = Date.now() + PATIENCE_MS;
  const isEnough = () => counts.reads >= reads && counts.hits >= reads / 10 && counts.writes >= 12;
  while (Date.now() < until && stale.length === 0 && !isEnough()) await sleep(20);
  isOver = true;
  await all;
  console.log(`counted: ${kind}${query}: ${JSON.stringify(counts)}, ${stale.length} stale`);
  return { counts, stale, isEnough: isEnough() };
}

for (const [kind, query] of [["express5", ""], ["express4", ""], ["plain", ""], ["plain", "?long"]]) {
  test(`nothing is stale: ${kind}${query}`, async () => {
    const { counts, stale, isEnough } = await checked(kind, { reads: 400, query });
    assert.deepStrictEqual(stale, []);
    assert.ok(isEnough, JSON.stringify(counts));
  });
}

test("the checker finds a bracket that ends before COMMIT", async () => {
  const { stale } = await checked("inside", { reads: Infinity });
  assert.notStrictEqual(stale.length, 0);
});
