// Tables of jobs, a page at a time: what the user searches for, sorts by and opens goes to the server with each request.
import { h } from "./dom.js";
import { count } from "./format.js";
import { arrayHref, cellOf, empty, section } from "./parts.js";
import { pollNow } from "./poll.js";
import { changed, state } from "./state.js";

const TYPING_MS = 200;
const START = { sort: "", descending: false, offset: 0 };

const tables = { running: { ...START }, waiting: { ...START }, ended: { ...START } };
const opened = new Set(); // arrays, by their numbers
let search = "";
let typing = null;

export const isSorted = (name) => tables[name].sort !== "";

// The request for a table's rows, or for those of one array.
export const tablePath = (name, limit, array) => {
  const { sort, descending, offset } = tables[name];
  const rows = array ? { search: `id:${array} ${search}`.trim(), grouped: "false" } : { search, open: [...opened].join(",") };
  const all = { limit, ...rows, sort, descending: sort && descending, offset: offset || "" };
  return `/v1/tables/${name}?${new URLSearchParams(Object.entries(all).filter(([, value]) => value))}`;
};

// Another view starts with the first rows.
export const toFirstRows = () => {
  for (const [name, each] of Object.entries(tables)) {
    each.offset = 0;
    delete state[name];
  }
};

// -- what is shown ----------------------------------------------------------------------------------------------------

const ORDER = { "": "none", up: "ascending", down: "descending" };
const direction = ({ sort, descending }, column) => (sort !== column ? "" : descending ? "down" : "up");

const heading = (name) => ([text, , kind, column]) => {
  if (!column) return h("th", { scope: "col", class: kind }, text);
  const towards = direction(tables[name], column);
  return h("th", { scope: "col", class: kind, "aria-sort": ORDER[towards] },
    h("button", { type: "button", class: `sort ${towards}`, "data-table": name, "data-sort": column }, text));
};

const STATES = ["running", "starting", "suspending", "suspended", "pending", "failed", "cancelled", "succeeded"];

export const arrayStates = ({ counts }) =>
  h("span", { class: "states" }, STATES.filter((each) => counts[each]).map((each) =>
    h("span", { class: `status ${each}`, "data-key": each }, `${count(counts[each])} ${each}`)));

export const arrayName = ({ job, array }) =>
  h("span", { class: "fold" },
    h("button", {
      type: "button", "data-array": array.id, "aria-expanded": String(array.open), "aria-label": `Tasks of array ${array.id}`,
    }),
    h("a", { class: "job", href: arrayHref(array.id) }, h("b", {}, array.id), " ", h("span", {}, job.name || ""),
      h("small", {}, `array, ${count(array.tasks)} tasks here`)));

// Whether a row is below that of its array, which may be on the page before.
const isTaskIn = ({ rows, offset }) => {
  const heads = new Set(rows.filter(({ array }) => array).map(({ array }) => array.id));
  return ({ job }) => {
    const [number, index] = job.id.split("-");
    return index !== undefined && (heads.has(number) || (offset > 0 && opened.has(number)));
  };
};

// Columns are [heading, cell(job), class, what the server sorts by, cell(row) of an array].
const rowOf = (columns, isTask) => (row) => {
  const cells = row.array ? columns.map(([text, , kind, , cell]) => [text, () => (cell ? cell(row) : "–"), kind]) : columns;
  return h("tr", { "data-key": row.array ? `array-${row.array.id}` : `row-${row.job.id}`, class: row.array ? "array" : isTask(row) && "task" },
    cells.map(cellOf(row.job)));
};

const turn = (name, offset, text, possible) =>
  h("button", { type: "button", "data-key": text, "data-table": name, "data-offset": offset, "aria-disabled": possible ? null : "true" }, text);

const pager = (name, caption, { rows, row_count: all, offset }, limit) => {
  if (all <= limit && !offset) return null;
  const last = Math.floor((all - 1) / limit) * limit;
  return h("div", { class: "pager", role: "group", "aria-label": `pages of: ${caption}`, "data-key": "pager" },
    turn(name, 0, "First", offset > 0), turn(name, Math.max(0, offset - limit), "Previous", offset > 0),
    h("span", { class: "soft" }, `rows ${count(offset + 1)} to ${count(offset + rows.length)} of ${count(all)}`),
    turn(name, offset + limit, "Next", offset + limit < all), turn(name, last, "Last", offset + limit < all));
};

const total = ({ total: all, matching }, array) => (array || matching === all ? count(matching) : `${count(matching)} of ${count(all)}`);

// A section with a table of jobs; `none` is what it says without any, `order` how the server sorts them by itself.
export const jobTable = (name, title, { caption, order, columns, limit, array, none, hint = null }) => {
  const answer = state[name];
  if (!answer) return section(name, title, "Loading …");
  const nothing = search && answer.total ? "No job here matches the search." : none;
  return section(name, `${title} (${total(answer, array)})`, hint,
    answer.rows.length
      ? h("table", { class: "list", "data-key": "table" },
          h("caption", { class: "unseen" }, caption, !tables[name].sort && order && `, ${order}`),
          h("thead", {}, h("tr", {}, columns.map(heading(name)))),
          h("tbody", {}, answer.rows.map(rowOf(columns, isTaskIn(answer)))))
      : empty(...[nothing].flat()),
    pager(name, caption, answer, limit));
};

export const searchBox = () =>
  h("div", { class: "search", role: "search", "data-key": "search" },
    h("label", { for: "search" }, "Search"),
    h("input", {
      id: "search", type: "search", autocomplete: "off", spellcheck: "false", maxlength: 180, value: search || null,
      placeholder: "name, id, user, queue, status; or user:ada",
    }),
    h("p", { class: "unseen", "aria-live": "polite" }, search && found()));

const found = () => {
  const answers = Object.keys(tables).map((name) => state[name]).filter((answer) => answer);
  return `${count(answers.reduce((sum, answer) => sum + answer.matching, 0))} jobs match`;
};

// -- what the user does -----------------------------------------------------------------------------------------------

const ask = () => {
  changed();
  pollNow();
};

// Ascending, then descending, then as the server orders them.
const sortBy = ({ table: name, sort }) => {
  const towards = direction(tables[name], sort);
  tables[name] = { ...START, sort: towards === "down" ? "" : sort, descending: towards === "up" };
  ask();
};

const turnTo = ({ table: name, offset }) => {
  tables[name] = { ...tables[name], offset: Number(offset) };
  ask();
};

const fold = ({ array }) => {
  if (!opened.delete(array)) opened.add(array);
  ask();
};

const clicked = ({ target }) => {
  const button = target.closest("button");
  if (!button || button.getAttribute("aria-disabled") === "true") return;
  if (button.dataset.sort) sortBy(button.dataset);
  if (button.dataset.offset) turnTo(button.dataset);
  if (button.dataset.array) fold(button.dataset);
};

const searchFor = (text) => {
  search = text.trim();
  for (const each of Object.values(tables)) each.offset = 0;
  ask();
};

const typed = ({ target }) => {
  if (target.id !== "search") return;
  clearTimeout(typing);
  typing = setTimeout(() => searchFor(target.value), TYPING_MS);
};

export const listenToTables = () => {
  document.addEventListener("click", clicked);
  document.addEventListener("input", typed);
};
