// A guest book in Express as its documentation would have it: express-session, logins, forms with a token of the session. It knows of no cache.
//
//     express_guestbook.js
//
// Prints the port that it listens on. Its entries are in memory.
"use strict";

const { randomBytes } = require("node:crypto");
const express = require("express");
const session = require("express-session");

const entries = [];
const app = express();
app.use(express.urlencoded({ extended: false }));
app.use(session({ secret: "of the example", resave: false, saveUninitialized: false, rolling: false }));

const escaped = (text) => text.replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`);

function page(request, body) {
    const visitor = request.session.name ? `<p>Signed in as ${escaped(request.session.name)}</p>` : "";
    return `<html>${visitor}${body}</html>`;
}

function form(request, action, field) {
    request.session.token ??= randomBytes(16).toString("hex");
    return page(request, `<form method="post" action="${action}"><input name="token" value="${request.session.token}"><input name="${field}"></form>`);
}

function check(request, response, next) {
    if (request.session.token && request.body.token === request.session.token) return next();
    response.status(403).send("another's form");
}

app.get("/", (request, response) => {
    const newest = entries.map((who, at) => [at + 1, who]).slice(-5).reverse();
    response.send(page(request, `<p>${entries.length} entries</p>` + newest.map(([number, who]) => `<p>${number} ${escaped(who)}</p>`).join("")));
});

app.get("/entry/:number", (request, response) => {
    const who = entries[request.params.number - 1];
    if (who === undefined) return response.status(404).send("no such entry");
    response.send(page(request, `<p>entry ${request.params.number} by ${escaped(who)}</p>`));
});

app.get("/sign", (request, response) => response.send(form(request, "/sign", "who")));

app.post("/sign", check, (request, response) => {
    entries.push(request.body.who);
    response.redirect("/");
});

app.get("/login", (request, response) => response.send(form(request, "/login", "name")));

app.post("/login", check, (request, response, next) => {
    request.session.regenerate((error) => {
        if (error) return next(error);
        request.session.name = request.body.name;
        response.redirect("/");
    });
});

const server = app.listen(0, "127.0.0.1", () => console.log("port", server.address().port));
