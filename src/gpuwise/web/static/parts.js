// What several views are made of.
import { h } from "./dom.js";
import { brief, count, figure, percent } from "./format.js";

export const ENDED = ["succeeded", "failed", "cancelled"];
export const ON_DEVICES = ["starting", "running", "suspending"];

export const jobHref = (id) => `#/job/${encodeURIComponent(id)}`;
export const arrayHref = (id) => `#/array/${encodeURIComponent(id)}`;

// A job has the same colour wherever it is shown; neighbours in an array have different ones.
export const colour = (id) => (id == null ? "other" : `c${id.split("-").reduce((sum, part) => sum + Number(part), 0) % 8}`);

export const jobLink = (job) =>
  h("a", { class: "job", href: jobHref(job.id) },
    h("span", { class: `swatch ${colour(job.id)}`, "aria-hidden": "true" }),
    h("b", {}, job.id), " ", h("span", {}, job.name || brief(job.command?.join(" ") ?? "")));

const HINTS = {
  pending: "has not run yet",
  starting: "has its devices, first step not completed",
  running: "trains",
  suspending: "checkpoints, then releases its devices",
  suspended: "checkpointed, waits to resume",
};

// Whether its user has put it on hold; other reasons why a job waits are in `why`.
export const isOnHold = (job) => (job.held ?? "").split(",").includes("user");

export const speed = (job) => (job.samples_per_s == null ? "–" : `${figure(job.samples_per_s)} samples/s`);

// Whose it is, and the queue if it is not the usual one.
export const userOf = (job) => [job.user || "–", job.queue && job.queue !== "default" && h("small", {}, job.queue)];

export const statusOf = (job) => {
  const held = isOnHold(job) && !ON_DEVICES.includes(job.status) && !ENDED.includes(job.status);
  return h("span", { class: `status ${job.status}`, title: HINTS[job.status] }, held ? `${job.status}, on hold` : job.status);
};

export const progress = (job) => {
  if (job.step === null || job.step === undefined) return "–";
  if (!job.steps) return `step ${count(job.step)}`;
  const done = Math.min(1, job.step / job.steps);
  return h("span", { class: "progress" },
    h("progress", { max: 1, value: done.toFixed(4), "aria-label": `progress of job ${job.id}` }),
    h("small", {}, `${percent(done)} · step ${count(job.step)} of ${count(job.steps)}`));
};

// What its user and administrators may do to a job, or to all tasks of an array.
export const mayChange = (job, status) => status?.role === "admin" || (status?.role === "user" && status.user === job.user);

// A button that asks the server for an action on a job, or on all tasks of an array.
export const action = (id, name, text, { danger = false, all = false } = {}) =>
  h("button", {
    type: "button", "data-key": name, "data-action": name, "data-job": id, "data-all": all && "yes", class: danger && "danger",
  }, text);

// Columns are [heading, cell(row), class]; on a narrow screen each row is a card, and each cell has its heading before it.
export const table = (caption, columns, rows) =>
  h("table", { class: "list" },
    h("caption", { class: "unseen" }, caption),
    h("thead", {}, h("tr", {}, columns.map(([heading, , kind]) => h("th", { scope: "col", class: kind }, heading)))),
    h("tbody", {}, rows.map((row) => h("tr", { "data-key": `row-${row.key ?? row.id}` }, columns.map(cellOf(row))))));

export const cellOf = (row) => ([heading, content, kind = ""], column) => {
  const shown = content(row);
  const attributes = { class: shown === "–" ? `${kind} none` : kind, "data-label": heading };
  return column ? h("td", attributes, h("div", {}, shown)) : h("th", { ...attributes, scope: "row" }, h("div", {}, shown));
};

export const section = (id, title, hint, ...content) =>
  h("section", { "data-key": id, "aria-labelledby": `${id}-title` },
    h("h2", { id: `${id}-title` }, title), hint && h("p", { class: "hint" }, hint), ...content);

export const empty = (...text) => h("p", { class: "empty" }, ...text);

export const facts = (pairs) =>
  h("dl", {}, pairs.filter((pair) => pair).map(([name, value, kind]) =>
    h("div", { "data-key": name, class: kind }, h("dt", {}, name), h("dd", {}, value))));
