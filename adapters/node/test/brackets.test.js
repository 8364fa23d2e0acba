"use strict";
/* Brackets by hand, and what the client is told in each case. */

const assert = require("node:assert");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const zlib = require("node:zlib");
const { after, before, test } = require("node:test");
const express = require("express");
const verbena = require("verbena");
const { PATIENCE_MS, ask, serve, sleep, startProxy, untilWritable } = require("./town");

const NOWHERE = "/nowhere/local.http.sock";
const ended = [];
process.on("warning", () => {});

let site, proxy, updates;

before(async () => {
  const apps = {};
  site = await serve((request, response) => apps.one(request, response));
  proxy = await startProxy(`http://${site.address}`);
  updates = new verbena.Updates({ place: proxy.helper });
  apps.one = verbena.announce((_request, response) => response.end(), { updates });
  await untilWritable(proxy.address, "/");
});

after(async () => {
  await proxy?.end();
  await site?.end();
  for (const one of ended) await one.end();
});

/** What the client gets of an application without a proxy. */
async function served(listener) {
  const one = await serve(listener);
  ended.push(one);
  return (method, body, headers) => ask(one.address, method, "/", body, headers);
}

/** How many updates are open at the helper. It says so a moment later. */
async function open() {
  const http = require("node:http");
  return new Promise((resolve, reject) => {
    http.get({ socketPath: proxy.helper, path: "/status", agent: false }, async (response) => {
      let text = "";
      for await (const piece of response.setEncoding("utf8")) text += piece;
      resolve(JSON.parse(text).pages.own_updates);
    }).on("error", reject);
  });
}

/** Until so many are open. */
async function untilOpen(wanted) {
  const until = Date.now() + PATIENCE_MS;
  while ((await open()) !== wanted) {
    assert.ok(Date.now() < until, `${await open()} updates are open, and not ${wanted}`);
    await sleep(10);
  }
}

/** As many as are open when no other number follows for a while: earlier tests have left some whose outcome is unknown. */
async function openNow() {
  let [count, same] = [await open(), 0];
  while (same < 30) {
    await sleep(10);
    const next = await open();
    [count, same] = [next, next === count ? same + 1 : 0];
  }
  return count;
}

test("brackets by hand", async () => {
  const before = await openNow();
  const update = await updates.begin(["a", "b", "a"]);
  await untilOpen(before + 1);
  await assert.rejects(update.end("perhaps"), RangeError);
  await update.end("not-sent");
  await update.end("done");
  await untilOpen(before);
  assert.strictEqual(await updates.around("a", async () => 7), 7);
  await assert.rejects(updates.around(verbena.EVERYTHING, () => Promise.reject(new SyntaxError())), SyntaxError);
  await updates.purge("a");
  await updates.purgePages("http://shop/");
  await assert.rejects(updates.purgePages("shop"), verbena.Refused);
  await assert.rejects(updates.begin([7]), TypeError);
  await assert.rejects(updates.begin(7), TypeError);
  await assert.rejects(new verbena.Updates({ place: NOWHERE }).begin(), verbena.NoHelper);
  for (const place of ["helper.sock", "http://10.0.0.1:80", "http://127.0.0.1", 7]) assert.throws(() => new verbena.Updates({ place }), TypeError);
  assert.throws(() => new verbena.Updates({ timeoutMs: 0 }), RangeError);
});

test("the helper is found as the commands find it", async () => {
  const directory = fs.mkdtempSync(path.join(os.tmpdir(), "verbena-place-"));
  const file = path.join(directory, "verbena.toml");
  const saved = { ...process.env };
  const found = async (settings) => {
    for (const name of ["VERBENA_HELPER", "VERBENA_CONFIG", "XDG_RUNTIME_DIR"]) delete process.env[name];
    Object.assign(process.env, settings);
    return new verbena.Updates().begin().then(() => "begun", (error) => error.message);
  };
  try {
    fs.writeFileSync(file, `cluster = { name = "shop" }\n[node]\nruntime = "${directory}"\n`);
    assert.match(await found({ VERBENA_CONFIG: file }), new RegExp(`${directory}/shop\\.http\\.sock`));
    assert.match(await found({ XDG_RUNTIME_DIR: directory }), new RegExp(`${directory}/verbena/local\\.http\\.sock`));
    assert.match(await found({ VERBENA_CONFIG: "" }), /VERBENA_CONFIG is empty/);
    fs.writeFileSync(file, "cluster = \n");
    assert.match(await found({ VERBENA_CONFIG: file }), /verbena\.toml: /);
    assert.strictEqual(await found({ VERBENA_HELPER: proxy.helper }), "begun");
  } finally {
    process.env = saved;
    fs.rmSync(directory, { recursive: true });
  }
});

test("a socket that another user could have made is not asked", async () => {
  const directory = fs.mkdtempSync(path.join(os.tmpdir(), "verbena-owner-"));
  const socket = path.join(directory, "local.http.sock");
  fs.symlinkSync(proxy.helper, socket);
  const asked = new verbena.Updates({ place: socket });
  await asked.purge("a");
  fs.chmodSync(directory, 0o777);
  await assert.rejects(asked.purge("a"), /could be another user's/);
  fs.chmodSync(directory, 0o1777);
  await asked.purge("a");
  fs.rmSync(directory, { recursive: true });
});

test("a write that cannot be announced is refused, and the application is not called", async () => {
  let calls = 0;
  const app = express();
  app.use(verbena.express({ updates: NOWHERE }));
  app.use((_request, response) => response.send(`call ${++calls}`));
  const asked = await served(app);
  const { status, headers, body } = await asked("POST");
  assert.deepStrictEqual([status, headers["retry-after"], calls], [503, "1", 0]);
  assert.match(body.toString(), /^not done/);
  assert.strictEqual((await asked("GET")).body.toString(), "call 1");
});

test("touching that fails is an error of the application, and nothing is written", async () => {
  const touching = () => 7;
  const app = express();
  app.use(verbena.express({ updates, touching }));
  app.use((_request, response) => response.send("written"));
  app.use((error, _request, response, _next) => response.status(500).send(error.name));
  const answer = await (await served(app))("POST");
  assert.deepStrictEqual([answer.status, answer.body.toString()], [500, "TypeError"]);
  assert.strictEqual((await (await served(verbena.announce(() => assert.fail(), { updates, touching })))("POST")).status, 500);
});

test("the middleware wants to be first", async () => {
  for (const make of [express, require("express4")]) {
    const app = make();
    app.use((_request, _response, next) => next());
    app.use(verbena.express({ updates }));
    app.use((error, _request, response, _next) => response.status(500).send(error.message));
    assert.match((await (await served(app))("GET")).body.toString(), /must be the first/);
  }
});

test("the answer is as it would be, and the update is open until its end", async () => {
  const app = express();
  const during = [];
  const before = await openNow();
  app.use(verbena.express({ updates, touching: () => "a" }));
  app.use(require("compression")({ threshold: 0 }));
  app.use(require("express-session")({ secret: "s", resave: true, saveUninitialized: true }));
  app.post("/", async (request, response) => {
    await untilOpen(before + 1);
    request.session.seen = true;
    response.status(201).set("X-Own", "1").json({ text: "x".repeat(1000) });
    during.push(response.headersSent, response.writableEnded);
    assert.throws(() => response.set("X-Late", "1"), { code: "ERR_HTTP_HEADERS_SENT" });
    assert.throws(() => response.writeHead(200), { code: "ERR_HTTP_HEADERS_SENT" });
  });
  const { status, headers, body } = await (await served(app))("POST", "", { "Accept-Encoding": "gzip" });
  assert.deepStrictEqual([status, headers["x-own"], headers["content-encoding"]], [201, "1", "gzip"]);
  assert.match(headers["set-cookie"][0], /^connect\.sid=/);
  assert.strictEqual(JSON.parse(zlib.gunzipSync(body)).text.length, 1000);
  // compression has the end of the answer, and gives it on when it has compressed it.
  assert.deepStrictEqual(during, [true, false]);
  await untilOpen(before);
});

test("heads and pieces in every form", async () => {
  const forms = {
    raw: (response) => response.writeHead(202, "Fine", ["X-A", "1", "X-A", "2"]).end("two"),
    pairs: (response) => response.writeHead(202, [["X-A", "1"], ["X-A", "2"]]).end(Buffer.from("two")),
    set: (response) => {
      response.statusCode = 202;
      response.setHeader("X-A", ["1", "2"]);
      response.flushHeaders();
      response.statusCode = 500;
      response.write("t");
      response.write("77", "hex");
      response.end(new Uint8Array([111]));
    },
  };
  const asked = {};
  for (const [name, form] of Object.entries(forms)) asked[name] = await served(verbena.announce((_request, response) => void form(response), { updates }));
  for (const [name, post] of Object.entries(asked)) {
    const { status, headers, body } = await post("POST");
    assert.deepStrictEqual([status, headers["x-a"], body.toString()], [202, "1, 2", "two"], name);
  }
  const empty = await (await served(verbena.announce((_request, response) => void response.end(), { updates })))("POST");
  assert.deepStrictEqual([empty.status, empty.headers["content-length"]], [200, "0"]);
});

test("dependencies are declared, and not after the head", async () => {
  const asked = await served(verbena.announce((request, response) => {
    request.verbena.madeOf('a"b\\', "c");
    response.write("x");
    try {
      request.verbena.madeOf("d");
    } catch (error) {
      response.end(error.message);
    }
  }, { updates }));
  for (const method of ["GET", "POST"]) {
    const { headers, body } = await asked(method);
    assert.strictEqual(headers["verbena-dependencies"], '"a\\"b\\\\", "c"');
    assert.match(body.toString(), /^xthe head of the answer has gone/);
  }
  const unsayable = await served(verbena.announce((request, response) => (request.verbena.madeOf("ä"), response.end()), { updates }));
  assert.strictEqual((await unsayable("GET")).headers["verbena-dependencies"], "");
});

test("work that is waited for, and that fails", async () => {
  let isDone = false;
  const after = await served(verbena.announce((request, response) => {
    request.verbena.waitUntil(sleep(20).then(() => (isDone = true)));
    response.end("early");
  }, { updates }));
  assert.strictEqual((await after("POST")).body.toString(), "early");
  assert.ok(isDone);
  const fails = await served(verbena.announce((request, response) => {
    request.verbena.waitUntil(Promise.reject(new Error("no COMMIT")));
    response.end("early");
  }, { updates, touching: () => "fails" }));
  const { status, body } = await fails("POST");
  assert.deepStrictEqual([status, body.toString()], [500, "unconfirmed: it may be done\n"]);
});

test("a client that hangs up does not end the update before the handler has", async () => {
  let isThere, go;
  const before = await openNow();
  const came = new Promise((resolve) => (isThere = resolve));
  const goes = new Promise((resolve) => (go = resolve));
  const app = express();
  app.use(verbena.express({ updates, touching: () => "a" }));
  app.post("/", async (_request, response) => {
    isThere();
    await goes;
    response.send("written");
  });
  const one = await serve(app);
  ended.push(one);
  const connections = () => new Promise((resolve, reject) => one.server.getConnections((error, count) => (error ? reject(error) : resolve(count))));
  const net = require("node:net");
  const client = net.connect(Number(one.address.split(":")[1]), "127.0.0.1");
  client.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
  await came;
  client.destroy();
  await sleep(100);
  // Until the server has noticed it.
  while ((await connections()) > 0) await sleep(10);
  assert.strictEqual(await openNow(), before + 1);
  go();
  await untilOpen(before);
});

/** The answer to a write during which the helper is killed. */
async function unconfirmed(answer) {
  const own = await startProxy("http://127.0.0.1:9");
  const listener = async (_request, response) => {
    own.kill();
    await own.exited;
    answer(response);
  };
  const asked = await served(verbena.announce(listener, { updates: own.helper }));
  const bracket = () => new verbena.Updates({ place: own.helper }).around("a", () => {});
  while (!(await bracket().then(() => true, () => false))) await sleep(50);
  return asked("POST").finally(() => own.end());
}

test("a client is not told of a write that is not confirmed", async () => {
  const { status, body } = await unconfirmed((response) => response.writeHead(200, { "X-Own": "1" }).end("written"));
  assert.deepStrictEqual([status, body.toString()], [500, "unconfirmed: it may be done\n"]);
});

test("a long answer that is not confirmed is cut", async () => {
  const long = unconfirmed((response) => {
    response.write("x".repeat(100_000));
    response.end("written");
  });
  await assert.rejects(long, { code: "ECONNRESET" });
});
