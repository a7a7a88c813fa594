// Quantities with their units, and times both by the local clock and relative to now.
import { h } from "./dom.js";
import { now } from "./api.js";

const two = (number) => String(number).padStart(2, "0");
const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

export const duration = (seconds) => {
  if (!known(seconds)) return "–";
  if (seconds < 0) return "-" + duration(-seconds);
  if (seconds < 9.95) return seconds.toFixed(1) + "s";
  if (seconds < 59.5) return Math.round(seconds) + "s";
  const whole = Math.round(seconds), minutes = Math.round(seconds / 60), hours = Math.round(seconds / 3600);
  if (whole < 3600) return Math.floor(whole / 60) + "m" + two(whole % 60) + "s";
  if (minutes < 1440) return Math.floor(minutes / 60) + "h" + two(minutes % 60) + "m";
  return Math.floor(hours / 24) + "d" + two(hours % 24) + "h";
};

export const bytes = (size) => {
  if (!known(size)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let power = 0;
  while (size >= 1024 && power < units.length - 1) { size /= 1024; power += 1; }
  return `${power ? Number(size.toPrecision(3)) : Math.round(size)} ${units[power]}`;
};

export const percent = (part) => (known(part) ? `${Math.round(100 * part)} %` : "–");

// Made once: toLocaleString makes one of these with each call, which is most of the time that a table takes.
const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const TIME = new Intl.DateTimeFormat([], { timeStyle: "medium" });
const DAY_AND_TIME = new Intl.DateTimeFormat([], { dateStyle: "medium", timeStyle: "short" });
const IN_FULL = new Intl.DateTimeFormat([], { dateStyle: "medium", timeStyle: "medium" });

export const count = (number) => (known(number) ? WHOLE.format(number) : "–");

export const figure = (number) => {
  if (!known(number)) return "–";
  const size = Math.abs(number);
  if (size !== 0 && (size < 1e-4 || size >= 1e7)) return number.toExponential(2);
  return size >= 1000 ? count(number) : String(Number(number.toPrecision(4)));
};

export const gpus = (job) => {
  if (!known(job.gpus)) return "–";
  const number = `${job.gpus}\u00a0${job.gpus === 1 ? "device" : "devices"}`;
  return job.gpu_frac < 1 ? `${percent(job.gpu_frac)} of ${number}` : number;
};

const clock = (at) => {
  const far = Math.abs(at - now()) > 20 * 3600;
  return (far ? DAY_AND_TIME : TIME).format(1000 * at);
};

export const relative = (at) => {
  const passed = now() - at;
  if (Math.abs(passed) < 1) return "now";
  const length = Math.abs(passed) < 10 ? `${Math.round(Math.abs(passed))}s` : duration(Math.abs(passed));
  return passed > 0 ? `${length} ago` : `in ${length}`;
};

// A text that fits into a row of a table.
export const brief = (text, most = 60) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

// A time as two lines: by the clock, and relative to now.
export const moment = (at) =>
  known(at)
    ? h("time", { datetime: new Date(1000 * at).toISOString(), title: IN_FULL.format(1000 * at) },
        clock(at), h("small", {}, relative(at)))
    : "–";
