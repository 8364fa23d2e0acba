import type { IncomingMessage, ServerResponse } from "node:http";

/** What a write touches that names nothing. */
export declare const EVERYTHING: unique symbol;

/** One name, several, or everything. What cannot be said by names is everything: none of them, more than 256, one of more than 1024 bytes. */
export type Touched = string | Iterable<string> | typeof EVERYTHING;

/** `done`: new reads see the write, or it was rolled back for certain. `not-sent`: nothing was written, and nothing will be. `unknown`: anything else. */
export type Outcome = "done" | "not-sent" | "unknown";

export interface UpdatesOptions {
  /** The helper's HTTP socket, `/run/user/1000/verbena/local.http.sock`, or `http://127.0.0.1:9090`. Without it VERBENA_HELPER says it, the configuration (VERBENA_CONFIG, `verbena.toml`), or the usual place. */
  place?: string;
  /** How long one question may take. 10,000 without it. */
  timeoutMs?: number;
}

/** The helper of this machine, told of writes. */
export declare class Updates {
  constructor(options?: UpdatesOptions);
  /** Begins an update. Write when this has resolved, and not before. If it rejects, write nothing. */
  begin(touched?: Touched): Promise<Update>;
  /** Begins an update, calls `write` and ends the update when its promise has resolved: let that be after COMMIT. If `write` fails, the outcome is unknown, and its error is thrown. */
  around<T>(touched: Touched, write: () => T | Promise<T>): Promise<T>;
  /** Takes all that is made of this out of every cache. */
  purge(touched?: Touched): Promise<void>;
  /** Takes the pages at these addresses, `http://HOST/PATH?QUERY` as clients ask for them, out of every cache. */
  purgePages(...pages: string[]): Promise<void>;
}

/** A write that every cache knows of: until it ends, no cache serves what it touches. */
export declare class Update {
  private constructor();
  /** Ends it, after COMMIT. When this has resolved, the client can be told of its write. If it rejects, do not tell the client that the write is done. Ending it again does nothing. */
  end(outcome?: Outcome): Promise<void>;
  /** Ends it with an outcome on which no answer to a client rests. Never rejects. */
  endQuietly(outcome: Outcome): Promise<void>;
}

/** What an application says of the request that it handles: `request.verbena`. */
export interface AnnouncedRequest {
  /** The page that is being answered is made of what bears these names. Calls add up; without one a page depends on everything. Throws once the head of the answer has gone. */
  madeOf(...names: string[]): void;
  /** The update of this request ends after this work too. If the work fails, the outcome is unknown, and the client is not told that the write is done. */
  waitUntil(work: PromiseLike<unknown>): void;
  /** What became of the write, if the application knows better than `done`. */
  outcome: Outcome;
}

export interface AnnounceOptions<Incoming extends IncomingMessage = IncomingMessage> {
  /** A place, or the helper itself. */
  updates?: string | Updates;
  /** What a request with an unsafe method touches; null if it writes nothing or brackets its write itself. EVERYTHING without it. It should only look: the body is not read yet. */
  touching?: (request: Incoming) => Touched | null | Promise<Touched | null>;
}

/** A listener of `http.createServer` in a bracket. If it returns a promise, the update ends after that too. */
export declare function announce(
  listener: (request: IncomingMessage, response: ServerResponse) => unknown,
  options?: AnnounceOptions,
): (request: IncomingMessage, response: ServerResponse) => Promise<unknown>;

/** A middleware of Express 4 and 5. It must be the first `app.use()` of the application. */
export declare function express(options?: AnnounceOptions<any>): (request: any, response: any, next: (error?: any) => void) => void;

/** Every error of this package. */
export declare class VerbenaError extends Error {}
/** No helper listens there. Nothing was begun. */
export declare class NoHelper extends VerbenaError {}
/** The helper cannot do it now. Nothing was begun: write nothing, and answer 503. */
export declare class Unavailable extends VerbenaError {}
/** The helper refuses. Nothing was begun. */
export declare class Refused extends VerbenaError {}
/** The helper did not answer in time. It may have done what it was asked. */
export declare class Late extends VerbenaError {}
/** The helper broke off. It may have done what it was asked. */
export declare class NoAnswer extends VerbenaError {}
/** The helper's answer cannot be read. */
export declare class Failed extends VerbenaError {}
/** The write is done, and a cache may not know of it. */
export declare class Unconfirmed extends VerbenaError {}
/** The update had ended already. */
export declare class NotOpen extends VerbenaError {}

declare module "http" {
  interface IncomingMessage {
    /** Behind `announce` and `express`. */
    verbena: AnnouncedRequest;
  }
}
