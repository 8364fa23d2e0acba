// What happened between two readings of /overview.

const LATENCIES = ["verbena_proxy_hit_latency_seconds", "verbena_proxy_miss_latency_seconds"];

// The point of the time between them; null if there is none: no time passed, or another life of the process counts from 0.
export function between(earlier, later) {
  const passed = (later.metrics.at_ns - earlier.metrics.at_ns) / 1e9;
  if (!(passed > 0) || earlier.status.pid !== later.status.pid) return null;
  const growth = (name, label, value) => {
    const at = (reading) => total(reading, name, label, value);
    return Math.max(0, at(later) - at(earlier)) / passed;
  };
  const answers = (result) => growth("verbena_proxy_answers_total", "result", result);
  const by = (name) => reasons(later, name).map(([reason, all]) => [reason, growth(name, "reason", reason), all]);
  const notStored = by("verbena_proxy_not_stored_total");
  const refused = notStored.filter(([reason]) => reason.startsWith("refused-") || reason === "home-late");
  const [hit, miss] = [answers("hit"), answers("miss")];
  const buckets = recorded(earlier, later);
  return {
    at: later.metrics.at_ns / 1e9,
    hit, miss, pass: answers("pass"), update: answers("update"), error: answers("error"),
    answers: growth("verbena_proxy_answers_total"),
    ratio: hit + miss > 0 ? hit / (hit + miss) : null,
    median: quantile(buckets, 0.5),
    p99: quantile(buckets, 0.99),
    updates: growth("verbena_content_updates_total"),
    refused: Object.fromEntries(refused.map(([reason, perSecond]) => [reason.replace("refused-", ""), perSecond])),
    refusals: refused.reduce((all, [, perSecond]) => all + perSecond, 0),
    notStored,
    emptied: emptied(earlier, later, passed),
    misses: by("verbena_proxy_misses_total"),
    ...missed(earlier, later, passed),
  };
}

function series(reading, name) {
  return reading.metrics.metrics.find((metric) => metric.name === name)?.series ?? [];
}

function total(reading, name, label, value) {
  const those = series(reading, name).filter((one) => label === undefined || one.labels[label] === value);
  return those.reduce((all, one) => all + one.value, 0);
}

// The reasons that ever were, most frequent first.
function reasons(reading, name) {
  const list = series(reading, name).map((one) => [one.labels.reason, one.value]);
  return list.filter(([, all]) => all > 0).sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]));
}

// Who emptied the cache: path and status, per second and ever, most frequent first.
function emptied(earlier, later, passed) {
  const name = "verbena_proxy_emptied_total";
  const key = ({ labels }) => `${labels.path} ${labels.status}`;
  const before = new Map(series(earlier, name).map((one) => [key(one), one.value]));
  const list = series(later, name).map((one) => [key(one), (one.value - (before.get(key(one)) ?? 0)) / passed, one.value]);
  return list.sort((a, b) => b[2] - a[2] || a[0].localeCompare(b[0])).slice(0, 10);
}

// What the proxies of all members answered per second, as far as they told in both readings; null if none did.
export function sums(earlier, later) {
  const all = { nodes: 0, answers: 0, hit: 0, miss: 0, update: 0 };
  for (const { incarnation, answers: now } of later.members) {
    const same = ({ incarnation: other }) => other.rank === incarnation.rank && other.start === incarnation.start;
    const before = earlier.members.find(same)?.answers;
    const passed = now && before ? (now.at_ns - before.at_ns) / 1e9 : 0;
    if (!(passed > 0)) continue;
    all.nodes += 1;
    for (const kind of ["hit", "miss", "pass", "update", "error"]) {
      const perSecond = Math.max(0, now[kind] - before[kind]) / passed;
      all.answers += perSecond;
      if (kind in all) all[kind] += perSecond;
    }
  }
  return all.nodes ? { ...all, ratio: all.hit + all.miss > 0 ? all.hit / (all.hit + all.miss) : null } : null;
}

// Addresses that were fetched: those that were most often, and those whose answers took longest on average.
function missed(earlier, later, passed) {
  const name = "verbena_proxy_missed_seconds";
  const before = new Map(series(earlier, name).map((one) => [one.labels.path, one.count]));
  const list = series(later, name).filter((one) => one.count > 0);
  const row = (one, last) => [one.labels.path, (one.count - (before.get(one.labels.path) ?? 0)) / passed, last];
  const mean = (one) => one.sum_seconds / one.count;
  const first = (value) => [...list].sort((a, b) => value(b) - value(a) || a.labels.path.localeCompare(b.labels.path)).slice(0, 10);
  return {
    missed: first((one) => one.count).map((one) => row(one, one.count)),
    slowest: first(mean).map((one) => row(one, mean(one))),
  };
}

// Buckets of latencies, by nanoseconds, shortest first.
function recorded(earlier, later) {
  const counts = new Map();
  for (const [reading, sign] of [[earlier, -1], [later, 1]])
    for (const name of LATENCIES)
      for (const one of series(reading, name))
        for (const [nanos, all] of one.buckets) counts.set(nanos, (counts.get(nanos) ?? 0) + sign * all);
  return [...counts].filter(([, all]) => all > 0).sort((a, b) => a[0] - b[0]);
}

// As verbena_metrics::LatencySnapshot::quantile, in seconds.
function quantile(buckets, q) {
  const all = buckets.reduce((sum, [, some]) => sum + some, 0);
  const rank = Math.max(1, Math.ceil(q * all));
  let below = 0;
  for (const [nanos, some] of buckets) {
    below += some;
    if (below >= rank) return nanos / 1e9;
  }
  return null;
}
