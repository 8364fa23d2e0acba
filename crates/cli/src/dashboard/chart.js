// One chart of the last minutes, as SVG: lines, or areas one on the other. Time goes to the right, now is the right edge.

// As wide as what there is to show: seconds, and what they are called.
const SPANS = [[30, "30 s"], [60, "1 min"], [120, "2 min"], [180, "3 min"], [300, "5 min"]];
const [LEFT, BOTTOM, TOP] = [46, 18, 8];
const make = (name, attributes = {}, text) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  if (text !== undefined) made.textContent = text;
  return made;
};
const html = (name, kind, text = "") => Object.assign(document.createElement(name), { className: kind, textContent: text });

// Draws into a figure that it puts into `into`. What it shows of a point: `value`, a list beside `series`, with null for what is not there;
// or `named`, an object whose names become series with the colours of `palette`.
export function chart(into, options) {
  const figure = html("figure", options.wide ? "chart wide" : "chart");
  const caption = document.createElement("figcaption");
  const [title, legend, plot] = [html("h2", "", options.title), html("ul", "legend"), html("div", "plot")];
  const nothing = html("p", "nothing");
  const svg = make("svg", { role: "img" });
  caption.append(title, legend);
  plot.append(svg, nothing);
  figure.append(caption, plot);
  into.append(figure);

  let [points, quiet, cursor] = [[], "", null];
  const redraw = () => draw(points, quiet);
  new ResizeObserver(redraw).observe(plot);
  plot.addEventListener("pointermove", (event) => {
    cursor = (event.clientX - plot.getBoundingClientRect().left - LEFT) / (plot.clientWidth - LEFT);
    redraw();
  });
  plot.addEventListener("pointerleave", () => {
    cursor = null;
    redraw();
  });

  function draw(newPoints, newQuiet) {
    [points, quiet] = [newPoints, newQuiet];
    const [series, rows] = table(points, options);
    const present = rows.some((row) => row.some((value) => value !== null));
    const empty = !present || (options.nothing ? points.every(options.nothing) : false);
    nothing.hidden = !empty;
    nothing.textContent = points.length === 0 ? "waiting for the second reading" : options.quiet ?? quiet;
    const size = { width: plot.clientWidth, height: plot.clientHeight };
    if (size.width <= LEFT) return;
    svg.setAttribute("viewBox", `0 0 ${size.width} ${size.height}`);
    const stack = options.stacked ? stacked(rows) : rows;
    const scale = options.log ? logarithmic(rows, size) : linear(stack, size, options.most);
    const last = points.at(-1)?.at ?? 0;
    const [span, spanWords] = SPANS.find(([seconds]) => last - (points[0]?.at ?? 0) <= seconds) ?? SPANS.at(-1);
    const x = (at) => LEFT + (1 - (last - at) / span) * (size.width - LEFT);
    const drawn = frame(size, empty ? { ...scale, ticks: [scale.floor] } : scale, empty ? () => "" : options.format, spanWords);
    if (!empty) {
      if (options.stacked) areas(stack, points, series, x, scale.y).forEach((path) => drawn.push(path));
      else lines(rows, points, series, x, scale, options.filled).forEach((path) => drawn.push(path));
    }
    const at = nearest(points, cursor, last, span);
    if (at >= 0) drawn.push(make("line", { class: "cursor", x1: x(points[at].at), x2: x(points[at].at), y1: TOP, y2: size.height - BOTTOM }));
    svg.replaceChildren(...drawn);
    keys(series, rows[at >= 0 ? at : rows.length - 1], at >= 0 ? last - points[at].at : null, spanWords);
  }

  function keys(series, row, ago, spanWords) {
    const items = series.map(([name, tone], nth) => {
      const item = html("li", "", name);
      item.style.setProperty("--tone", `var(${tone})`);
      const value = row?.[nth] ?? null;
      item.append(html("b", "", value === null ? "–" : options.format(value)));
      return item;
    });
    if (ago !== null) items.unshift(html("li", "when", `${Math.round(ago)} s ago`));
    legend.replaceChildren(...items);
    svg.setAttribute("aria-label", `${options.title}, last ${spanWords}. Now: ${items.map((item) => item.textContent).join(", ") || "nothing"}`);
  }

  return { draw };
}

// The series, and for each point a value for each of them.
function table(points, options) {
  if (!options.named) return [options.series, points.map(options.value)];
  const names = [...new Set(points.flatMap((point) => Object.keys(options.named(point))))].sort();
  const series = names.map((name, nth) => [name, options.palette[nth % options.palette.length]]);
  return [series, points.map((point) => names.map((name) => options.named(point)[name] ?? 0))];
}

const stacked = (rows) => rows.map((row) => row.reduce((sums, value) => [...sums, (sums.at(-1) ?? 0) + (value ?? 0)], []));

function linear(rows, { height }, fixed) {
  const most = fixed ?? nice(Math.max(...rows.flat().filter((value) => value !== null), 0));
  const y = (value) => height - BOTTOM - (value / most) * (height - BOTTOM - TOP);
  return { y, ticks: [0, most / 2, most], floor: 0 };
}

function logarithmic(rows, { height }) {
  const values = rows.flat().filter((value) => value > 0);
  const low = Math.floor(Math.log10(values.length ? Math.min(...values) : 1e-4));
  const high = Math.max(low + 1, Math.ceil(Math.log10(values.length ? Math.max(...values) : 1e-2)));
  const y = (value) => height - BOTTOM - ((Math.log10(value) - low) / (high - low)) * (height - BOTTOM - TOP);
  const ticks = Array.from({ length: high - low + 1 }, (_, nth) => 10 ** (low + nth));
  return { y, ticks, floor: 10 ** low };
}

// The next of 1, 2, 5 times a power of ten.
function nice(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((step) => step * power >= value) * power;
}

function frame({ width, height }, scale, format, span) {
  const floor = height - BOTTOM;
  const drawn = scale.ticks.flatMap((tick, nth) => [
    make("line", { class: nth ? "grid" : "base", x1: LEFT, x2: width, y1: scale.y(tick), y2: scale.y(tick) }),
    make("text", { x: LEFT - 7, y: scale.y(tick) + 4, "text-anchor": "end" }, format(tick).replace(/\.0+(?=\D|$)/, "")),
  ]);
  for (const [x, words, anchor] of [[LEFT, `${span} ago`, "start"], [width, "now", "end"]])
    drawn.push(make("text", { x, y: floor + 14, "text-anchor": anchor }, words));
  return drawn;
}

// Runs of points that have a value and follow each other without a hole.
function runs(values, points) {
  const found = [];
  let run = null;
  values.forEach((value, nth) => {
    const gap = nth > 0 && points[nth].at - points[nth - 1].at > 5;
    if (value === null || gap) run = null;
    if (value === null) return;
    if (!run) found.push((run = []));
    run.push(nth);
  });
  return found;
}

const path = (kind, tone, data) => {
  const made = make("path", { class: kind, d: data });
  made.style.setProperty("--tone", `var(${tone})`);
  return made;
};

const through = (run, x, y) => run.map((nth, first) => `${first ? "L" : "M"}${x(nth).toFixed(1)} ${y(nth).toFixed(1)}`).join("");

function lines(rows, points, series, x, scale, filled) {
  const at = (nth) => x(points[nth].at);
  return series.flatMap(([, tone], which) => runs(rows.map((row) => row[which]), points).flatMap((run) => {
    // A point alone is a dot: a line of no length with round ends.
    const line = through(run, at, (nth) => scale.y(rows[nth][which])) + (run.length === 1 ? "h0.1" : "");
    const stroke = path("stroke", tone, line);
    if (!filled) return [stroke];
    const floor = scale.y(scale.floor);
    return [path("fill", tone, `${line}L${at(run.at(-1))} ${floor}L${at(run[0])} ${floor}Z`), stroke];
  }));
}

function areas(sums, points, series, x, y) {
  const at = (nth) => x(points[nth].at);
  return series.flatMap(([, tone], which) => runs(sums.map((row) => row[which]), points).map((run) => {
    const upper = through(run, at, (nth) => y(sums[nth][which]));
    const lower = through([...run].reverse(), at, (nth) => y(which ? sums[nth][which - 1] : 0));
    return path("stack", tone, `${upper}L${lower.slice(1)}Z`);
  }));
}

function nearest(points, cursor, last, span) {
  if (cursor === null || cursor < 0) return -1;
  const wanted = last - (1 - cursor) * span;
  return points.reduce((best, point, nth) => (best < 0 || Math.abs(point.at - wanted) < Math.abs(points[best].at - wanted) ? nth : best), -1);
}
