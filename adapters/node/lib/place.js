"use strict";
/*
 * Where the helper of this machine listens, found as the commands of `verbena` find it, and whether its socket can be another user's.
 *
 * Node cannot ask the kernel which user is at the other end of a socket. So the file system has to answer: nobody but this user and root may be able to put a
 * socket there. Where the application names a directory itself, its owner is trusted as well.
 */

const fs = require("node:fs");
const path = require("node:path");
const { NoHelper } = require("./errors");

const CONFIG = "VERBENA_CONFIG";
const WRITABLE_BY_OTHERS = 0o002;
const STICKY = 0o1000;

/** The user's directory for sockets: `$XDG_RUNTIME_DIR/verbena`, else `/run/user/UID/verbena`, else `/tmp/verbena-UID`. */
function usualDirectory() {
  const named = process.env.XDG_RUNTIME_DIR;
  if (named && path.isAbsolute(named)) return path.join(named, "verbena");
  const ofTheUser = `/run/user/${process.geteuid()}`;
  const stat = fs.statSync(ofTheUser, { throwIfNoEntry: false });
  return stat?.isDirectory() ? path.join(ofTheUser, "verbena") : `/tmp/verbena-${process.geteuid()}`;
}

/** What the configuration says of it: `{ runtime, name }`, each a text or undefined. */
async function configured() {
  const named = process.env[CONFIG];
  if (named === "") throw new TypeError(`${CONFIG} is empty: unset it, or name a file`);
  const file = named ?? "verbena.toml";
  if (named === undefined && !fs.existsSync(file)) return {};
  const { parse } = await import("smol-toml");
  let read;
  try {
    read = parse(fs.readFileSync(file, "utf8"));
  } catch (error) {
    throw new TypeError(`${file}: ${error.message}`, { cause: error });
  }
  return { runtime: read.node?.runtime, name: read.cluster?.name };
}

/**
 * A place as http.request takes it. `text` is a socket's path or `http://127.0.0.1:PORT`; without one it is what VERBENA_HELPER says, what the configuration
 * says, or where a helper listens that was told nothing else.
 */
async function placeOf(text) {
  const named = text ?? (process.env.VERBENA_HELPER || undefined);
  if (named !== undefined) return parsed(named);
  const { runtime, name } = await configured();
  const socketPath = path.join(runtime ?? usualDirectory(), `${name ?? "local"}.http.sock`);
  return { text: socketPath, socketPath, isNamed: runtime !== undefined };
}

/** The place that a text names. Throws a TypeError if it names none. */
function parsed(text) {
  if (typeof text === "string" && path.isAbsolute(text)) return { text, socketPath: text, isNamed: true };
  const address = typeof text === "string" && /^http:\/\/(127\.0\.0\.1|\[::1\]):(\d{1,5})\/?$/.exec(text);
  if (!address) throw new TypeError(`${JSON.stringify(text)} is neither an absolute path nor http://127.0.0.1:PORT: a program asks the helper beside it`);
  return { text, host: address[1].replace(/[[\]]/g, ""), port: Number(address[2]) };
}

/** Throws NoHelper if another user could have made the socket. */
function checkOwner(place) {
  if (place.socketPath === undefined) return;
  const ours = (stat) => stat.uid === 0 || stat.uid === process.geteuid();
  let directory, socket;
  try {
    directory = fs.statSync(path.dirname(place.socketPath));
    socket = fs.lstatSync(place.socketPath);
  } catch (error) {
    throw new NoHelper(`no helper answers at ${place.text}: ${error.message}; start \`verbena node\` or \`verbena proxy\`, or name another address`, { cause: error });
  }
  const anybodyWrites = (directory.mode & WRITABLE_BY_OTHERS) !== 0;
  const trusted = anybodyWrites ? (directory.mode & STICKY) !== 0 && ours(socket) : place.isNamed || ours(directory);
  if (!trusted) throw new NoHelper(`the socket ${place.text} could be another user's: its directory belongs to user ${directory.uid}, with mode ${(directory.mode & 0o7777).toString(8)}`);
}

module.exports = { placeOf, parsed, checkOwner };
