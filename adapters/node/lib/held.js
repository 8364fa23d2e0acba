"use strict";
/*
 * An answer to a write, kept back until its update has ended.
 *
 * The application writes as always: `writeHead`, `write`, `end`, `pipe` and what middlewares put around these. Up to READ_FIRST bytes are kept, and the client gets
 * none of them. Of a longer answer the client gets all but the last piece. So in no case does the client have a whole answer before `release`.
 *
 * To the application the answer looks as it would without us: `headersSent` and `writableEnded` are true when the application has done its part, and a header
 * that comes later is an error. Middlewares that were put on later have kept our functions, so these stay in place after the release and then pass all on.
 */

/** Bytes of an answer that are kept before the client gets any of it. */
const READ_FIRST = 64 << 10;

class Held {
  #response;
  #own = {};
  #beforeHead;
  #status;
  #pieces = [];
  #bytes = 0;
  #isHeadThere = false;
  #isPassing = false;
  #isReleased = false;
  #end;
  #toldEnded;

  /** Resolves when the application has ended its answer. */
  ended = new Promise((resolve) => (this.#toldEnded = () => resolve(true)));

  /** `beforeHead` is called once, when the application's head is complete, and may still set headers. */
  constructor(response, beforeHead) {
    this.#response = response;
    this.#beforeHead = beforeHead;
    const mine = {
      writeHead: this.#writeHead,
      write: this.#write,
      end: this.#endOfApplication,
      flushHeaders: this.#implicitHead,
      // Not documented, and called by middlewares that compress or keep sessions.
      _implicitHeader: this.#implicitHead,
      setHeader: this.#refuseOnceSent("set"),
      appendHeader: this.#refuseOnceSent("append"),
      removeHeader: this.#refuseOnceSent("remove"),
    };
    for (const [name, kept] of Object.entries(mine)) {
      const own = response[name];
      const isOfBody = name === "write" || name === "end";
      this.#own[name] = (...values) => own.apply(response, values);
      response[name] = (...values) => ((isOfBody ? this.#isReleased : this.#isPassing) ? own.apply(response, values) : kept.call(this, name, ...values));
    }
  }

  get isPassing() {
    return this.#isPassing;
  }

  /** The update has ended: the client gets the rest. */
  release() {
    this.#pass();
    this.#isReleased = true;
    this.#forgetLooks();
    for (const piece of this.#pieces) this.#own.write(...piece);
    if (this.#end !== undefined) this.#own.end(...this.#end);
  }

  /** In place of the application's answer, of which the client has nothing yet. */
  replace(status, text) {
    this.#isPassing = this.#isReleased = true;
    this.#forgetLooks();
    // By the functions below those of middlewares: to them the answer has ended.
    own(this.#response, status, text, {}, this.#own);
  }

  #writeHead(_name, status, ...more) {
    if (this.#isHeadThere) throw sent("write");
    const code = status | 0;
    if (code < 100 || code > 999) throw Object.assign(new RangeError(`Invalid status code: ${status}`), { code: "ERR_HTTP_INVALID_STATUS_CODE" });
    const message = typeof more[0] === "string" ? more.shift() : undefined;
    if (message !== undefined && /[^\t\x20-\x7e\x80-\xff]/.test(message)) throw Object.assign(new TypeError("Invalid character in statusMessage"), { code: "ERR_INVALID_CHAR" });
    // Whatever is wrong with a header is said here, to the application.
    this.#setAll(more[0] ?? {});
    this.#response.statusCode = code;
    if (message !== undefined) this.#response.statusMessage = message;
    this.#headIsThere();
    return this.#response;
  }

  #setAll(headers) {
    if (!Array.isArray(headers)) {
      for (const [name, value] of Object.entries(headers)) if (name) this.#own.setHeader(name, value);
      return;
    }
    const flat = headers.flat(Array.isArray(headers[0]) ? 1 : 0);
    if (flat.length % 2 !== 0) throw Object.assign(new TypeError("headers are names and values in turn"), { code: "ERR_INVALID_ARG_VALUE" });
    for (let at = 0; at < flat.length; at += 2) this.#own.removeHeader(flat[at]);
    for (let at = 0; at < flat.length; at += 2) this.#own.appendHeader(flat[at], flat[at + 1]);
  }

  /** As Node does it: through the `writeHead` of those that have put theirs around ours. */
  #implicitHead() {
    if (!this.#isHeadThere) this.#response.writeHead(this.#response.statusCode);
  }

  #headIsThere() {
    this.#beforeHead();
    this.#isHeadThere = true;
    this.#status = [this.#response.statusCode, this.#response.statusMessage];
    look(this.#response, "headersSent");
  }

  #write(_name, chunk, ...more) {
    const told = more.find((value) => typeof value === "function") ?? (() => {});
    if (this.#end !== undefined) {
      process.nextTick(told, Object.assign(new Error("write after end"), { code: "ERR_STREAM_WRITE_AFTER_END" }));
      return false;
    }
    const kept = piece(chunk, more[0]);
    this.#implicitHead();
    process.nextTick(told);
    this.#bytes += kept[0].length;
    this.#pieces.push(kept);
    if (!this.#isPassing && this.#bytes <= READ_FIRST) return true;
    this.#pass();
    const last = this.#pieces.pop();
    let hasRoom = true;
    for (const one of this.#pieces) hasRoom = this.#own.write(...one);
    this.#pieces = [last];
    return hasRoom;
  }

  /** From here on the head is the response's own affair. */
  #pass() {
    if (this.#isPassing) return;
    this.#isPassing = true;
    this.#forgetLooks();
    if (this.#isHeadThere) [this.#response.statusCode, this.#response.statusMessage] = this.#status;
  }

  #forgetLooks() {
    delete this.#response.headersSent;
    delete this.#response.writableEnded;
  }

  #endOfApplication(_name, ...values) {
    const told = values.find((value) => typeof value === "function");
    if (this.#end !== undefined) {
      if (told) process.nextTick(told, Object.assign(new Error("the answer has ended"), { code: "ERR_STREAM_ALREADY_FINISHED" }));
      return this.#response;
    }
    const [chunk, encoding] = values;
    const last = chunk === undefined || chunk === null || typeof chunk === "function" ? [] : piece(chunk, encoding);
    this.#implicitHead();
    this.#end = told ? [...last, told] : last;
    look(this.#response, "writableEnded");
    this.#toldEnded();
    return this.#response;
  }

  #refuseOnceSent(what) {
    return function (name, ...values) {
      if (this.#isHeadThere) throw sent(what);
      return this.#own[name](...values);
    };
  }
}

/** A piece of a body, as bytes: the application may use its buffer again. */
function piece(chunk, encoding) {
  if (typeof chunk === "string") return [Buffer.from(chunk, typeof encoding === "string" ? encoding : "utf8")];
  if (chunk instanceof Uint8Array) return [Buffer.from(chunk)];
  throw Object.assign(new TypeError("a piece of a body is a string, a Buffer or a Uint8Array"), { code: "ERR_INVALID_ARG_TYPE" });
}

function sent(what) {
  return Object.assign(new Error(`Cannot ${what} headers after they are sent to the client`), { code: "ERR_HTTP_HEADERS_SENT" });
}

/** The application sees this property as true, until it is deleted. */
function look(response, name) {
  Object.defineProperty(response, name, { value: true, configurable: true });
}

/** Answers with a text of ours. */
function own(response, status, text, headers = {}, methods = response) {
  for (const name of response.getHeaderNames()) methods.removeHeader(name);
  response.statusCode = status;
  response.statusMessage = undefined;
  methods.setHeader("Content-Type", "text/plain");
  for (const [name, value] of Object.entries(headers)) methods.setHeader(name, value);
  methods.end(text);
}

module.exports = { Held, own };
