"use strict";

/** Every error of this package. Its `name` says which. */
class VerbenaError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** No helper listens there: start `verbena node` or `verbena proxy`. Nothing was begun. */
class NoHelper extends VerbenaError {}

/** The helper cannot do it now, and nothing was begun: write nothing, and answer 503. */
class Unavailable extends VerbenaError {}

/** The helper refuses, and says why. Nothing was begun. */
class Refused extends VerbenaError {}

/** The helper did not answer in time. It may have done what it was asked. */
class Late extends VerbenaError {}

/** The helper broke off. It may have done what it was asked. */
class NoAnswer extends VerbenaError {}

/** The helper's answer cannot be read: it is of another version. */
class Failed extends VerbenaError {}

/** The write is done, and a cache may not know of it: do not tell the client that it is done. */
class Unconfirmed extends VerbenaError {}

/** The update has ended already: it was open for longer than `pages.longest_transaction`, or its helper was started again. */
class NotOpen extends VerbenaError {}

module.exports = { VerbenaError, NoHelper, Unavailable, Refused, Late, NoAnswer, Failed, Unconfirmed, NotOpen };
