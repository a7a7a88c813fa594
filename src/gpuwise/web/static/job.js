// One job: its details, actions, attempts and log.
import { h } from "./dom.js";
import { bytes, count, duration, figure, gpus, moment } from "./format.js";
import { entries } from "./feed.js";
import { ENDED, ON_DEVICES, action, arrayHref, empty, facts, isOnHold, jobHref, mayChange } from "./parts.js";
import { progress, section, speed, statusOf, table } from "./parts.js";

const MOST_ATTEMPTS = 50, MOST_AFTER = 20; // that are listed

const actions = (job, status) => {
  if (ENDED.includes(job.status) || !mayChange(job, status)) return null;
  return h("div", { class: "actions" },
    isOnHold(job) ? action(job.id, "resume", "Resume") : action(job.id, "suspend", "Suspend"),
    action(job.id, "cancel", "Cancel job", { danger: true }));
};

const between = (job) => (job.duration_low_s == null || job.duration_high_s == null
  ? "" : `${duration(job.duration_low_s)} to ${duration(job.duration_high_s)}, `);

const SOURCES = {
  declared: "declared by its user", history: "from earlier runs", predicted: "predicted from its model",
  observed: "measured on its steps so far", default: "default value",
};

const after = ({ after: ids }) => [
  ids.slice(0, MOST_AFTER).map((id, i) => [i > 0 && ", ", h("a", { href: jobHref(id) }, id)]),
  ids.length > MOST_AFTER && ` and ${count(ids.length - MOST_AFTER)} others`,
];

const deviceTime = (job) =>
  [duration(job.gpu_s), ON_DEVICES.includes(job.status) && h("small", {}, "not counting its present devices")];

const arrayOf = (job) => [h("a", { href: arrayHref(job.id.split("-")[0]) }, job.id.split("-")[0]), `, index ${job.array_index}`];

const numbers = (job) => facts([
  ["status", statusOf(job)],
  ["where", job.placement || "no device"],
  ["progress", progress(job)],
  ["loss", figure(job.loss)],
  ["speed", speed(job)],
  ["device time", deviceTime(job)],
  ["suspended", job.preemptions ? `${job.preemptions} ×` : "never"],
  ["peak memory", bytes(job.peak_memory_bytes)],
]);

const times = (job) => facts([
  ["submitted", moment(job.submitted_at)],
  ["first start", moment(job.started_at)],
  job.estimated_start && ["start, estimated", moment(job.estimated_start)],
  job.estimated_finish && ["finish, estimated", moment(job.estimated_finish)],
  job.ended_at && ["ended", moment(job.ended_at)],
  ["forecast run time", [duration(job.duration_s), h("small", {}, between(job) + (SOURCES[job.duration_source] ?? ""))]],
  job.deadline_s && ["deadline", moment(job.deadline_s)],
]);

const asked = (job) => facts([
  ["needs", gpus(job)],
  ["memory of each device", job.gpu_memory_bytes ? bytes(job.gpu_memory_bytes) : "not known"],
  ["user", job.user],
  ["queue", job.queue],
  ["priority", String(job.priority)],
  job.after?.length > 0 && ["after", after(job)],
  job.array_index != null && ["array", arrayOf(job)],
  job.failures > 0 && ["failed attempts", String(job.failures)],
  job.out_of_memory > 0 && ["out of memory", `${job.out_of_memory} ×`],
  job.ended_at && job.exit_code != null && ["exit code", String(job.exit_code)],
  job.command && ["command", h("code", {}, job.command.join(" ")), "wide"],
  job.workdir && ["folder", h("code", {}, job.workdir), "wide"],
]);

const allFacts = (job) => [numbers(job), times(job), asked(job)];

const publicFacts = (job) => [
  facts([
    ["status", statusOf(job)],
    ["where", job.placement || "no device"],
    ["user", job.user],
    ["queue", job.queue],
    ["needs", gpus(job)],
    job.array_index != null && ["array", arrayOf(job)],
  ]),
  times(job),
  h("p", { class: "hint" }, "Its name, command, attempts and log are for its user and administrators."),
];

const ATTEMPTS = [
  ["Attempt", (attempt) => [h("span", { class: "narrow" }, "Attempt "), String(attempt.number)]],
  ["Where", (attempt) => attempt.placement, "text"],
  ["From", (attempt) => moment(attempt.started_at)],
  ["Ran for", (attempt) => (attempt.ended_at === null ? "runs" : duration(attempt.ended_at - attempt.started_at))],
  ["Outcome", (attempt) => [attempt.outcome || "–", attempt.detail && h("small", {}, attempt.detail)], "text"],
  ["Exit code", (attempt) => (attempt.exit_code === null ? "–" : String(attempt.exit_code))],
  ["CPU time", (attempt) => duration(attempt.cpu_s)],
  ["Peak memory", (attempt) => bytes(attempt.peak_memory_bytes)],
];

const why = (job, { why: answer }) => {
  const text = ENDED.includes(job.status) ? job.why_ended : answer?.why;
  return text ? h("p", { class: "why" }, text) : null;
};

// The last attempts; one that is preempted often has many.
const launches = ({ attempts: answer }) => {
  const all = answer?.attempts ?? [];
  if (!all.length) return empty("It has not been started yet.");
  const hidden = all.length - MOST_ATTEMPTS;
  return [
    hidden > 0 && h("p", { class: "hint" }, `The last ${MOST_ATTEMPTS}.`),
    table("Attempts", ATTEMPTS, all.slice(-MOST_ATTEMPTS).map((each) => ({ ...each, key: each.number }))),
  ];
};

const log = ({ id }) => h("pre", {
  id: "log", "data-key": `log-${id}`, "data-own": true, tabindex: 0, "aria-label": `log of job ${id}`,
});

export const job = (state) => {
  const { job: answer, events, estimates } = state;
  if (!answer || answer.missing) return section("job", "Job", answer?.missing ?? "Loading …");
  const { estimated_start, estimated_finish } = estimates?.rows?.map((row) => row.job).find(({ id }) => id === answer.id) ?? {};
  const known = { ...answer, estimated_start, estimated_finish };
  const own = events.filter((event) => event.job === known.id);
  return [
    h("div", { class: "title", "data-key": "title" },
      h("h2", {}, `Job ${known.id}`, h("span", { class: "soft" }, ` ${known.name ?? ""}`)), actions(known, state.status)),
    h("div", { "data-key": "facts", class: "stack" }, why(known, state), known.details ? allFacts(known) : publicFacts(known)),
    known.details && section("attempts", `Attempts (${count(known.attempts)})`, null, launches(state)),
    known.details && section("log", "Log", null, log(known)),
    own.length > 0 && section("history", "Recent events", null, entries(own, 100)),
  ];
};
