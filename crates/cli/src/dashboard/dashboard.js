// The page of one node. Once a second it reads /overview, whose counters and buckets only grow, and shows what happened between two
// readings. It begins with the points that the node has kept, and keeps those of the last five minutes.

import { chart } from "./chart.js";
import { between, sums } from "./interval.js";
import { bytes, count, duration, percent, rate, seconds } from "./words.js";

const EVERY = 1000;
const PATIENCE = 4000;
const POINTS = 300;

const find = (id) => document.getElementById(id);
const charts = find("charts");
const plots = [
  chart(charts, {
    title: "Requests per second", wide: true, stacked: true, format: rate,
    series: [["hits", "--hit"], ["fetched", "--miss"], ["passed on", "--pass"], ["updates", "--update"], ["errors", "--error"]],
    value: (point) => [point.hit, point.miss, point.pass, point.update, point.error],
    nothing: (point) => !point.answers,
  }),
  chart(charts, {
    title: "Latency", wide: true, log: true, format: seconds,
    series: [["median", "--median"], ["p99", "--p99"]],
    value: (point) => [point.median, point.p99],
  }),
  chart(charts, {
    title: "Hit ratio", most: 1, filled: true, format: percent,
    series: [["hits", "--hit"]], value: (point) => [point.ratio],
  }),
  chart(charts, {
    title: "Updates per second", filled: true, format: rate, quiet: "no updates",
    series: [["begun", "--update"]], value: (point) => [point.updates],
    nothing: (point) => !point.updates,
  }),
  chart(charts, {
    title: "Refused registrations", stacked: true, format: rate, quiet: "none refused", palette: ["--a", "--b", "--c", "--d", "--e", "--f", "--g"],
    named: (point) => point.refused, nothing: (point) => !point.refusals,
  }),
];

let earlier = null;
let points = [];
let awaySince = null;

async function read(path) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  return answer.json();
}

async function poll() {
  try {
    const reading = await read("overview");
    // Another life of the process counts from 0 again, and its clock may be another machine's.
    if (earlier?.status.pid !== reading.status.pid) points = (await read("charts")).points;
    show(reading);
    back();
  } catch (error) {
    away(error);
  }
  setTimeout(poll, EVERY);
}

function show(reading) {
  const point = earlier && between(earlier, reading);
  if (earlier) together(sums(earlier, reading));
  earlier = reading;
  if (point) {
    points.push(point);
    points = points.slice(-POINTS);
    tiles(point);
    reasons(find("refusals"), point.notStored, "everything that was fetched was stored");
    reasons(find("misses"), point.misses, "nothing yet");
    reasons(find("emptied"), point.emptied, "nothing yet");
    reasons(find("missed"), point.missed, "nothing yet");
    reasons(find("slowest"), point.slowest, "nothing yet", seconds);
  }
  heading(reading);
  nodes(reading);
  facts(reading);
  const has = reading.metrics.metrics.some((metric) => metric.name === "verbena_proxy_answers_total");
  for (const plot of plots) plot.draw(points, has ? "no requests" : "this node runs no proxy");
}

function back() {
  awaySince = null;
  find("away").hidden = true;
  document.body.classList.remove("away");
  set(find("pulse"), "live", "good");
}

function away(error) {
  awaySince ??= new Date();
  const text = `No answer since ${awaySince.toLocaleTimeString()}. Trying again every second.`;
  const banner = find("away");
  if (banner.hidden || banner.textContent !== text) banner.textContent = text;
  banner.hidden = false;
  banner.title = String(error.message ?? error);
  document.body.classList.add("away");
  set(find("pulse"), "not reached", "bad");
}

const STATES = {
  member: ["member", "good"],
  joining: ["joining", "warn"],
  lapsed: ["without lease", "bad"],
  leaving: ["leaving", "warn"],
};

function keptOut({ name, incarnation, keeps_out: kept }) {
  const who = name ?? `${incarnation.rank}.${incarnation.start}`;
  const what = kept.everything
    ? "no page of this home is cached, because it is not known what it had open"
    : `what its ${count(kept.updates)} open updates touch is not cached`;
  return `${who} is gone: ${what}; ${Math.ceil(kept.left_ms / 1000)} s more at most`;
}

function heading({ status }) {
  document.title = `${status.name} · verbena`;
  find("node").textContent = status.name;
  set(find("state"), ...STATES[status.state]);
  find("about").textContent = `${status.fabric.provider} · version ${status.version} · process ${status.pid} · up ${duration(status.uptime_ms)}`;
  const kept = (status.departed_list ?? []).filter((gone) => gone.keeps_out);
  find("kept").hidden = kept.length === 0;
  find("kept").textContent = kept.map(keptOut).join(" · ");
  find("view").textContent = `view ${status.view}${status.departed ? `, ${count(status.departed)} departed not settled` : ""}`;
}

function tiles(point) {
  const tile = (id, value, text) => {
    find(id).textContent = text;
    find(id).dataset.value = value ?? "";
  };
  tile("requests", point.answers, rate(point.answers));
  tile("ratio", point.ratio, point.ratio === null ? "–" : percent(point.ratio));
  tile("median", point.median, point.median === null ? "–" : seconds(point.median));
  tile("p99", point.p99, point.p99 === null ? "–" : seconds(point.p99));
  tile("updates", point.updates, rate(point.updates));
  tile("refused", point.refusals, rate(point.refusals));
}

function nodes({ members, status, sampled_keys }) {
  const body = find("nodes").tBodies[0];
  const rows = members.map((member) => {
    const told = member.told;
    const [word, tone] = standing(member);
    const row = element("tr", { role: "row" });
    const cell = (label, ...content) => {
      const td = element("td", { role: "cell" });
      td.dataset.label = label;
      td.append(...content);
      row.append(td);
      return td;
    };
    const life = `${member.incarnation.rank}.${member.incarnation.start}`;
    const name = element("span", {}, member.name);
    name.append(small(member.is_self ? `${life}, this node` : life, "life"));
    cell("Node", name).className = "name";
    cell("State", set(element("span", { class: "dot" }), word, tone));
    cell("Lease left", told && !member.out ? lease(told) : "–");
    cell("View", told ? `${told.view} / ${told.acknowledged} / ${told.in_effect}` : `– / ${member.acknowledged ? status.view : "–"} / –`);
    cell("Load", ...load(member));
    const roles = cell("Roles", member.roles.replaceAll(",", ", "));
    if (member.keys !== null) roles.append(" ", small(`${percent(member.keys / sampled_keys)} of names`));
    cell("Address", member.address).className = "address";
    cell("Since", told ? since(told.uptime_ms) : "–");
    return row;
  });
  if (!rows.length) rows.push(nothing(8, "in no view yet"));
  body.replaceChildren(...rows);
}

function together(all) {
  find("sums").hidden = all === null;
  if (!all) return;
  find("sums").dataset.nodes = all.nodes;
  const ratio = all.ratio === null ? "no reads" : `${percent(all.ratio)} hits`;
  find("sums").textContent = `${all.nodes === 1 ? "1 proxy" : `${count(all.nodes)} proxies`} together: ${rate(all.answers)} requests/s, ${ratio}, ${rate(all.update)} updates/s`;
}

function load({ load, out }) {
  if (!load || out || load.age_ms > 3000) return ["–"];
  const parts = [`${(load.runnable_milli / 1000).toFixed(1)} tasks`, `${bytes(load.available_bytes)} free`, `${count(load.connections)} connections`];
  return [percent(load.busy_milli / 1000 / Math.max(1, load.cores)), " ", small(`of ${load.cores}, ${parts.join(", ")}`)];
}

function standing(member) {
  if (member.out) return ["out of lease", "bad"];
  if (!member.told) return ["no answer", "warn"];
  if (member.told.age_ms > 3000) return [`silent for ${duration(member.told.age_ms)}`, "warn"];
  return STATES[member.told.state];
}

function lease({ lease_ms, lease_left_ms }) {
  const part = Math.min(1, lease_left_ms / lease_ms);
  const shown = element("span", { class: "lease" });
  const bar = element("span", { class: "bar", role: "img", "aria-label": `${percent(part)} of the lease is left` });
  const fill = element("i", {});
  fill.style.setProperty("--part", `${Math.round(part * 100)}%`);
  bar.append(set(fill, "", part > 0.25 ? "good" : part > 0 ? "warn" : "bad"));
  shown.append(bar, `${(lease_left_ms / 1000).toFixed(1)} s`);
  return shown;
}

function since(uptime_ms) {
  const began = new Date(Date.now() - uptime_ms);
  const today = began.toDateString() === new Date().toDateString();
  const shown = element("time", { datetime: began.toISOString() }, today ? began.toLocaleTimeString() : began.toLocaleString());
  const all = element("span", {});
  all.append(shown, " ", small(`up ${duration(uptime_ms)}`));
  return all;
}

const MEANINGS = {
  "refused-moved": "the page changed while it was fetched",
  "refused-update-open": "an update that touches it is open",
  "refused-dependency-moved": "what it is made of changed while it was fetched",
  "refused-dependency-busy": "an update of what it is made of is open",
  "refused-no-lease": "its home has no lease",
  "refused-other-view": "the view changed meanwhile",
  "home-late": "its home did not answer in time",
  "moved": "it changed since it was stored",
  "update-open": "an update that touches it is open",
  "uri-miss": "it was not there",
  "method": "a request that writes",
};

function reasons(table, list, none, last = count) {
  const rows = list.map(([reason, perSecond, total]) => {
    const row = element("tr", { role: "row" });
    const name = element("td", { role: "cell" }, reason);
    if (MEANINGS[reason]) name.append(small(MEANINGS[reason]));
    row.append(name, element("td", { role: "cell" }, rate(perSecond)), element("td", { role: "cell" }, last(total)));
    return row;
  });
  if (!rows.length) rows.push(nothing(3, none));
  table.tBodies[0].replaceChildren(...rows);
}

function facts({ status, metrics }) {
  const series = (name) => metrics.metrics.find((metric) => metric.name === name)?.series;
  const sum = (name) => series(name)?.reduce((all, one) => all + one.value, 0);
  const up = series("verbena_proxy_origin_up");
  const list = [
    ["Applications that answer", up && `${sum("verbena_proxy_origin_up")} of ${up.length}`],
    ["Connections of clients", sum("verbena_proxy_connections")],
    ["Requests under way", sum("verbena_proxy_requests_in_flight")],
    ["Pages in the store", sum("verbena_proxy_pages")],
    ["Memory of the store", bytes(sum("verbena_proxy_store_bytes"))],
    ["Pages of this home", status.pages.registered],
    ["Updates open at this home", status.pages.open_updates_here],
    ["Own updates open", status.pages.own_updates],
    ["Members awaited", status.pages.awaiting],
    ["Programs connected", sum("verbena_ipc_clients")],
  ];
  const shown = list.filter(([, value]) => value !== undefined && value !== null);
  find("facts").replaceChildren(...shown.flatMap(([name, value]) => [
    element("dt", {}, name),
    element("dd", {}, typeof value === "number" ? count(value) : value),
  ]));
}

function element(name, attributes, text = "") {
  const made = document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  made.textContent = text;
  return made;
}

function small(text, kind = "") {
  return element("small", kind ? { class: kind } : {}, text);
}

function nothing(columns, text) {
  const row = element("tr", { role: "row" });
  row.append(element("td", { role: "cell", colspan: columns, class: "none" }, text));
  return row;
}

function set(shown, text, tone) {
  shown.textContent = text;
  shown.classList.remove("good", "warn", "bad");
  shown.classList.add(tone);
  return shown;
}

poll();
