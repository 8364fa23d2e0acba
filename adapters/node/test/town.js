"use strict";
/* Guest books in this process, and a real `verbena proxy` in front of them whose routes trust the application. */

const { spawn } = require("node:child_process");
const fs = require("node:fs");
const http = require("node:http");
const os = require("node:os");
const path = require("node:path");
const readline = require("node:readline");
const { setTimeout: sleep } = require("node:timers/promises");

const VERBENA = process.env.VERBENA;
const PATIENCE_MS = 60_000;

/** Starts a proxy in a directory of its own. `end` stops it. */
async function startProxy(origin) {
  const directory = fs.mkdtempSync(path.join(os.tmpdir(), "verbena-node-"));
  const options = ["--listen", "127.0.0.1:0", "--origin", origin, "--proxy-routes", '[{ prefix = "/", writes = "announced" }]'];
  const places = ["--node-runtime", path.join(directory, "run"), "--node-state", path.join(directory, "state")];
  const log = fs.openSync(path.join(directory, "log"), "w");
  const child = spawn(VERBENA, ["proxy", "--json", ...options, ...places], { cwd: directory, stdio: ["ignore", "pipe", log] });
  fs.closeSync(log);
  const exited = new Promise((resolve) => child.once("exit", resolve));
  const end = async (signal = "SIGTERM") => {
    child.kill(signal);
    await exited;
    fs.rmSync(directory, { recursive: true });
  };
  for await (const line of readline.createInterface(child.stdout)) {
    const said = JSON.parse(line);
    if (said.event !== "serving") continue;
    const run = fs.readdirSync(path.join(directory, "run")).find((name) => name.endsWith(".http.sock"));
    return { address: said.address, helper: path.join(directory, "run", run), directory, kill: () => child.kill("SIGKILL"), exited, end };
  }
  throw new Error(`the proxy has ended: ${fs.readFileSync(path.join(directory, "log"))}`);
}

/** Until the node is in a view, so that writes can be announced. */
async function untilWritable(address, target) {
  const until = Date.now() + PATIENCE_MS;
  while ((await ask(address, "POST", target, "0")).status !== 200) {
    if (Date.now() > until) throw new Error("no write can be announced");
    await sleep(50);
  }
}

/** Asks once, on a connection of its own. Rejects if the answer is cut. */
function ask(address, method, target, body, headers = {}) {
  const [host, port] = address.split(":");
  return new Promise((resolve, reject) => {
    const request = http.request({ host, port, method, path: target, agent: false, timeout: PATIENCE_MS, headers }, (response) => {
      const pieces = [];
      response.on("data", (piece) => pieces.push(piece));
      response.on("error", reject);
      response.on("end", () => resolve({ status: response.statusCode, headers: response.headers, body: Buffer.concat(pieces) }));
    });
    request.on("timeout", () => request.destroy(new Error("no answer")));
    request.on("error", reject);
    request.end(body);
  });
}

/** Serves a listener on a port of the system's choice. */
async function serve(listener) {
  const server = http.createServer(listener);
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const end = () => new Promise((resolve) => (server.close(resolve), server.closeAllConnections()));
  return { address: `127.0.0.1:${server.address().port}`, server, end };
}

module.exports = { PATIENCE_MS, ask, serve, sleep, startProxy, untilWritable };
