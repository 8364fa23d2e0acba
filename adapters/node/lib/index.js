"use strict";

const { VerbenaError, NoHelper, Unavailable, Refused, Late, NoAnswer, Failed, Unconfirmed, NotOpen } = require("./errors");
const { EVERYTHING } = require("./names");
const { Updates, Update } = require("./updates");
const { announce, express } = require("./announce");

module.exports = { EVERYTHING, Updates, Update, announce, express, VerbenaError, NoHelper, Unavailable, Refused, Late, NoAnswer, Failed, Unconfirmed, NotOpen };
