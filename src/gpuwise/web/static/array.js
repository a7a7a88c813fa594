// One array: its tasks by status, what may be done to all of them, and the tasks themselves.
import { h } from "./dom.js";
import { ended } from "./ended.js";
import { entries } from "./feed.js";
import { count, gpus, moment } from "./format.js";
import { ENDED, action, facts, mayChange, section } from "./parts.js";
import { queue } from "./queue.js";
import { arrayStates, searchBox } from "./tables.js";

const LIMIT = 25; // rows of a table

const actions = ({ id, live, held, job }, status) => {
  if (!live || !mayChange(job, status)) return null;
  return h("div", { class: "actions" },
    held < live && action(id, "suspend", "Suspend all", { all: true }),
    held > 0 && action(id, "resume", "Resume all", { all: true }),
    action(id, "cancel", "Cancel all", { danger: true, all: true }));
};

const about = ({ tasks, job, ...array }) => [
  facts([["tasks", count(tasks)], ["status", arrayStates(array)]]),
  facts([
    ["each task needs", gpus(job)],
    ["user", job.user],
    ["queue", job.queue],
    ["submitted", moment(job.submitted_at)],
    job.details && ["command", h("code", {}, job.command.join(" ")), "wide"],
    job.workdir && ["folder", h("code", {}, job.workdir), "wide"],
  ]),
];

export const array = (id) => (state) => {
  const answer = state.array;
  if (!answer || answer.missing) return section("array", "Array", answer?.missing ?? "Loading …");
  const known = { ...answer, live: answer.tasks - ENDED.reduce((sum, status) => sum + (answer.counts[status] ?? 0), 0) };
  const own = state.events.filter(({ job }) => job?.startsWith(`${id}-`));
  return [
    h("div", { class: "title", "data-key": "title" },
      h("h2", {}, `Array ${id}`, h("span", { class: "soft" }, ` ${answer.job.name}`)), actions(known, state.status)),
    h("div", { "data-key": "facts", class: "stack" }, about(answer)),
    searchBox(),
    queue(LIMIT, id), answer.job.details && ended(LIMIT, id),
    own.length > 0 && section("history", "Recent events", null, entries(own, 50)),
  ];
};
