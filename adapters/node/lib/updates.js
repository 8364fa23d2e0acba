"use strict";
/* The helper of this machine, told of writes: what docs/reference/API.md says. */

const http = require("node:http");
const { Failed, Late, NoAnswer, NoHelper, NotOpen, Refused, Unavailable, Unconfirmed } = require("./errors");
const { EVERYTHING, namesOf } = require("./names");
const { checkOwner, parsed, placeOf } = require("./place");

/** Longer than the helper's own deadline, so that the helper says what is wrong. */
const TIMEOUT_MS = 10_000;
const LONGEST_TIMEOUT_MS = 2 ** 31 - 1;
const OUTCOMES = ["done", "not-sent", "unknown"];

class Updates {
  #place;
  #timeoutMs;

  constructor({ place, timeoutMs = TIMEOUT_MS } = {}) {
    if (!(timeoutMs > 0 && timeoutMs <= LONGEST_TIMEOUT_MS)) throw new RangeError(`timeoutMs is ${timeoutMs}: it is more than 0 and less than 25 days`);
    // A wrong text is said here, and not at the first write.
    this.#place = place === undefined ? undefined : parsed(place);
    this.#timeoutMs = timeoutMs;
  }

  async begin(touched = EVERYTHING) {
    const said = await this.#ask("/v1/updates", bodyOf(touched));
    if (typeof said.update !== "string") throw new Failed(`the helper's answer has no update in it: ${JSON.stringify(said)}`);
    return new Update((outcome) => this.#end(said.update, outcome));
  }

  async around(touched, write) {
    const update = await this.begin(touched);
    let result;
    try {
      result = await write();
    } catch (error) {
      await update.endQuietly("unknown");
      throw error;
    }
    await update.end("done");
    return result;
  }

  async purge(touched = EVERYTHING) {
    await this.#ask("/v1/purge", bodyOf(touched));
  }

  async purgePages(...pages) {
    await this.#ask("/v1/purge", { pages });
  }

  async #end(name, outcome) {
    const said = await this.#ask(`/v1/updates/${name}/end`, { outcome }, true);
    return said.acknowledge === true;
  }

  async #ask(path, body, isEnd = false) {
    this.#place ??= await placeOf();
    checkOwner(this.#place);
    const { status, read } = await exchanged(this.#place, path, JSON.stringify(body), this.#timeoutMs);
    let said;
    try {
      said = JSON.parse(read);
    } catch {
      said = undefined;
    }
    const isObject = typeof said === "object" && said !== null;
    if (status >= 200 && status < 300) {
      if (!isObject) throw new Failed(`the helper's answer cannot be read: ${JSON.stringify(read.slice(0, 200))}`);
      return said;
    }
    const problem = isObject && typeof said.error === "string" ? said.error : "it gives no reason";
    if (status === 503) throw new Unavailable(problem);
    if (status === 404 && isEnd) throw new NotOpen(problem);
    throw new Refused(`${problem} (${status})`);
  }
}

/** A write that every cache knows of: until it ends, no cache serves what it touches. */
class Update {
  #ask;
  #isOpen = true;

  constructor(ask) {
    this.#ask = ask;
  }

  async end(outcome = "done") {
    if (!OUTCOMES.includes(outcome)) throw new RangeError(`${JSON.stringify(outcome)} is no outcome: there are done, not-sent and unknown`);
    if (!this.#isOpen) return;
    this.#isOpen = false;
    const acknowledged = await this.#ask(outcome);
    if (!acknowledged && outcome === "done") throw new Unconfirmed("a cache may not know of the write: do not tell the client that it is done");
  }

  /** Ends it with an outcome on which no answer to a client rests. What the helper is not told, it takes for unknown by itself. */
  async endQuietly(outcome) {
    try {
      await this.end(outcome);
    } catch (error) {
      process.emitWarning(`the helper did not learn the outcome of a write: ${error.message}`, "VerbenaWarning");
    }
  }
}

function bodyOf(touched) {
  const names = namesOf(touched);
  return names === null ? { everything: true } : { dependencies: names };
}

/** One question on a connection of its own: a kept one may be closed by the helper just then, and a write is not asked for twice. */
function exchanged(place, path, body, timeoutMs) {
  return new Promise((resolve, reject) => {
    const where = place.socketPath === undefined ? { host: place.host, port: place.port } : { socketPath: place.socketPath };
    const headers = { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(body), Host: "helper", Connection: "close" };
    if (place.host !== undefined) delete headers.Host;
    const request = http.request({ ...where, method: "POST", path, headers, agent: false });
    let isConnected = false;
    const timer = setTimeout(() => failed(new Late(`no answer from the helper at ${place.text} within ${timeoutMs} ms`)), timeoutMs);
    const failed = (error) => {
      clearTimeout(timer);
      reject(error);
      request.destroy();
    };
    const broken = (error) => {
      const message = error?.message ?? "the connection has ended";
      if (isConnected) failed(new NoAnswer(`the helper at ${place.text} broke off: ${message}`, { cause: error }));
      else failed(new NoHelper(`no helper answers at ${place.text}: ${message}; start \`verbena node\` or \`verbena proxy\`, or name another address`, { cause: error }));
    };
    request.once("socket", (socket) => socket.once("connect", () => (isConnected = true)));
    request.on("error", broken);
    request.on("response", (response) => {
      const pieces = [];
      response.on("data", (piece) => pieces.push(piece));
      response.on("error", broken);
      response.on("close", () => {
        if (!response.complete) return broken();
        clearTimeout(timer);
        resolve({ status: response.statusCode, read: Buffer.concat(pieces).toString() });
      });
    });
    request.end(body);
  });
}

module.exports = { Updates, Update };
