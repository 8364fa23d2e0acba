"use strict";
/* Names of what a page is made of and of what a write touches. What cannot be said by names is everything, never nothing, which would leave stale pages. */

const MOST_NAMES = 256;
const LONGEST_NAME = 1024;
const LONGEST_FIELD = 16 << 10;

/** What a write touches that names nothing. */
const EVERYTHING = Symbol("verbena.EVERYTHING");

/** The names, each once; null for everything, and for what cannot be said by names. */
function namesOf(touched) {
  if (touched === EVERYTHING) return null;
  const listed = typeof touched === "string" ? [touched] : touched;
  if (listed === null || typeof listed?.[Symbol.iterator] !== "function") throw new TypeError("what is touched is a name, several names, or EVERYTHING");
  const names = [...new Set(listed)];
  for (const name of names) checkName(name);
  const usable = names.length > 0 && names.length <= MOST_NAMES && names.every((name) => name !== "" && Buffer.byteLength(name) <= LONGEST_NAME);
  return usable ? names : null;
}

/** Throws a TypeError if it is no text. */
function checkName(name) {
  if (typeof name !== "string") throw new TypeError(`a name of what is touched, or of what a page is made of, is a text: ${String(name)}`);
}

/** The value of Verbena-Dependencies: a list of strings (RFC 9651). Empty, which is everything, if the names cannot be written. */
function fieldOf(names) {
  const usable = namesOf(names);
  if (usable === null || !usable.every((name) => /^[ -~]+$/.test(name))) return "";
  const value = usable.map((name) => `"${name.replace(/[\\"]/g, "\\$&")}"`).join(", ");
  return value.length <= LONGEST_FIELD ? value : "";
}

module.exports = { EVERYTHING, namesOf, checkName, fieldOf };
