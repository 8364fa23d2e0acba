// Numbers as people read them.

const three = (value) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2));

export const count = (value) => Math.round(value).toLocaleString("en");

export function rate(value) {
  if (value === 0) return "0";
  if (value < 1) return value.toFixed(2);
  if (value < 9.95) return value.toFixed(1);
  if (value < 9999.5) return count(value);
  return value < 999500 ? `${three(value / 1e3)}k` : `${three(value / 1e6)}M`;
}

export const percent = (value) => (value === 1 || value === 0 ? `${value * 100}%` : `${(value * 100).toFixed(1)}%`);

export function seconds(value) {
  if (value < 1e-3) return `${three(value * 1e6)} µs`;
  return value < 1 ? `${three(value * 1e3)} ms` : `${three(value)} s`;
}

export function duration(millis) {
  const all = Math.floor(millis / 1000);
  if (all < 60) return `${all} s`;
  if (all < 3600) return `${Math.floor(all / 60)} min`;
  if (all < 86400) return `${Math.floor(all / 3600)} h ${Math.floor((all % 3600) / 60)} min`;
  return `${Math.floor(all / 86400)} d ${Math.floor((all % 86400) / 3600)} h`;
}

export function bytes(size) {
  if (size === undefined) return undefined;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let power = 0;
  while (size >= 1024 && power < units.length - 1) [size, power] = [size / 1024, power + 1];
  return `${power ? three(size) : size} ${units[power]}`;
}
