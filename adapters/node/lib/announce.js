"use strict";
/*
 * A bracket around each request that writes: an update begins before the application sees the request, and ends when the application has ended its answer and
 * all that it asked to wait for is done. The client gets the end of the answer after that.
 */

const { VerbenaError } = require("./errors");
const { Held, own } = require("./held");
const { EVERYTHING, checkName, fieldOf } = require("./names");
const { Updates } = require("./updates");

const SAFE = new Set(["GET", "HEAD", "OPTIONS", "TRACE"]);
const OUTCOMES = new Set(["done", "not-sent", "unknown"]);
const FIELD = "Verbena-Dependencies";
const REFUSED = "not done: it could not be announced to the caches\n";
const BROKEN = "not done: the application cannot say what it would touch\n";
const UNCONFIRMED = "unconfirmed: it may be done\n";

/** What an application says of the request that it handles: `request.verbena`. */
class Request {
  #names = [];
  #waits = [];
  #outcome = "done";
  #isHeadThere = false;

  madeOf(...names) {
    if (this.#isHeadThere) throw new Error("the head of the answer has gone: say what a page is made of before its first byte");
    for (const name of names) checkName(name);
    this.#names.push(...names);
  }

  waitUntil(work) {
    this.#waits.push(Promise.resolve(work).then(() => true, warned("work after an answer to a write has failed")));
  }

  get outcome() {
    return this.#outcome;
  }

  set outcome(outcome) {
    if (!OUTCOMES.has(outcome)) throw new RangeError(`${JSON.stringify(outcome)} is no outcome: there are done, not-sent and unknown`);
    this.#outcome = outcome;
  }

  /** Called when the head of the answer is complete. */
  static declare(request, response) {
    if (request.#isHeadThere) return;
    if (request.#names.length > 0) response.setHeader(FIELD, fieldOf(request.#names));
    request.#isHeadThere = true;
  }

  /** Waits for all that the application asked to wait for. False if any of it has failed. */
  static async waited(request) {
    let isGood = true;
    // While it waits more may come.
    for (let at = 0; at < request.#waits.length; at += 1) isGood = (await request.#waits[at]) && isGood;
    return isGood;
  }
}

/** Runs `call` for one request, in a bracket if it writes. `mistaken` gets an error that was thrown before `call`. */
class Announcer {
  #updates;
  #touching;

  constructor({ updates, touching = () => EVERYTHING } = {}) {
    this.#updates = updates instanceof Updates ? updates : new Updates({ place: updates });
    this.#touching = touching;
  }

  async around(incoming, response, call, mistaken) {
    const request = new Request();
    incoming.verbena = request;
    if (SAFE.has(incoming.method)) return passed(request, response, call);
    let update;
    try {
      const touched = await this.#touching(incoming);
      if (touched === null) return passed(request, response, call);
      update = await this.#updates.begin(touched);
    } catch (error) {
      if (!(error instanceof VerbenaError)) return mistaken(error);
      warned("a write was refused because it could not be announced")(error);
      return own(response, 503, REFUSED, { "Retry-After": "1" });
    }
    const held = new Held(response, () => Request.declare(request, response));
    let result;
    try {
      result = call();
    } catch (error) {
      await update.endQuietly("unknown");
      throw error;
    }
    const isPromise = typeof result?.then === "function";
    if (isPromise) request.waitUntil(result);
    const hasEnded = await (isPromise ? endedOrGone(held, response, result) : held.ended);
    await finished(update, hasEnded, held, request, response);
    return result;
  }
}

/** A request that is not announced. */
function passed(request, response, call) {
  const writeHead = response.writeHead;
  response.writeHead = (...values) => {
    if (!response.headersSent) Request.declare(request, response);
    return writeHead.apply(response, values);
  };
  return call();
}

/** True when the application has ended its answer; false when its handler has returned and nobody waits for an answer, or has failed. */
function endedOrGone(held, response, result) {
  const hasGone = new Promise((resolve) => (response.destroyed ? resolve(false) : response.once("close", () => resolve(false))));
  const neverWill = Promise.resolve(result).then(() => hasGone, () => false);
  return Promise.race([held.ended, neverWill]);
}

async function finished(update, hasEnded, held, request, response) {
  const isGood = (await Request.waited(request)) && hasEnded;
  let isConfirmed = isGood;
  if (isGood && request.outcome === "done") {
    try {
      await update.end("done");
    } catch (error) {
      warned("a write is done, and its client gets an error")(error);
      isConfirmed = false;
    }
  } else {
    await update.endQuietly(isGood ? request.outcome : "unknown");
  }
  try {
    if (isConfirmed) held.release();
    else if (held.isPassing) response.destroy();
    else held.replace(500, UNCONFIRMED);
  } catch (error) {
    warned("the answer to a write cannot be given")(error);
    response.destroy();
  }
}

function warned(what) {
  return (error) => {
    process.emitWarning(`${what}: ${error?.message ?? error}`, "VerbenaWarning");
    return false;
  };
}

/** A listener of `http.createServer` in a bracket: outermost, so all that the listener does for a request is inside. */
function announce(listener, options) {
  const announcer = new Announcer(options);
  return (incoming, response) =>
    announcer.around(incoming, response, () => listener(incoming, response), (error) => {
      warned("a request that may write was not looked at")(error);
      own(response, 500, BROKEN);
    });
}

/** A middleware of Express 4 and 5, the first of its application. */
function express(options) {
  const announcer = new Announcer(options);
  let isFirst = false;
  return function verbena(incoming, response, next) {
    isFirst ||= standsFirst(incoming.app, verbena);
    if (!isFirst) return next(new Error("verbena.express() must be the first app.use() of the application: what stands before it may write after the update has ended"));
    announcer.around(incoming, response, () => void next(), next);
  };
}

/** Whether nothing but Express's own stands before it in the application. */
function standsFirst(app, middleware) {
  // Express 4 has `_router`, and two layers of its own in it; its `router` throws.
  const stack = (app._router ?? app.router).stack;
  const others = stack.filter((layer) => layer.name !== "query" && layer.name !== "expressInit");
  return others[0]?.handle === middleware;
}

module.exports = { announce, express };
