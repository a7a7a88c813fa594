// One job: its details, actions, attempts and log.
import { h } from "./dom.js";
import { bytes, count, duration, figure, gpus, moment } from "./format.js";
import { entries } from "./feed.js";
import { ENDED, facts, isOnHold, jobHref, progress, section, speed, statusOf, table } from "./parts.js";

const action = (job, name, text, danger) =>
  h("button",
    { type: "button", "data-key": name, "data-action": name, "data-job": job.id, class: danger && "danger" }, text);

const actions = (job, status) => {
  const mayChange = status?.role === "admin" || (status?.role === "user" && status.user === job.user);
  if (ENDED.includes(job.status) || !mayChange) return null;
  return h("div", { class: "actions" },
    isOnHold(job) ? action(job, "resume", "Resume") : action(job, "suspend", "Suspend"),
    action(job, "cancel", "Cancel job", true));
};

const between = (job) => (job.duration_low_s == null || job.duration_high_s == null
  ? "" : `${duration(job.duration_low_s)} to ${duration(job.duration_high_s)}, `);

const SOURCES = {
  declared: "declared by its user", history: "from earlier runs", predicted: "predicted from its model",
  observed: "measured on its steps so far", default: "default value",
};

const after = (job) => job.after.map((id, i) => [i > 0 && ", ", h("a", { href: jobHref(id) }, id)]);

const numbers = (job) => facts([
  ["status", statusOf(job)],
  ["where", job.placement || "no device"],
  ["progress", progress(job)],
  ["loss", figure(job.loss)],
  ["speed", speed(job)],
  ["device time", duration(job.gpu_s)],
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
  job.array_index != null && ["array index", String(job.array_index)],
  job.failures > 0 && ["failed attempts", String(job.failures)],
  job.out_of_memory > 0 && ["out of memory", `${job.out_of_memory} ×`],
  job.ended_at && job.exit_code != null && ["exit code", String(job.exit_code)],
  job.command && ["command", h("code", {}, job.command.join(" ")), "wide"],
  job.workdir && ["folder", h("code", {}, job.workdir), "wide"],
]);

const allFacts = (job) => [numbers(job), times(job), asked(job)];

const publicFacts = (job) => [
  facts([["status", statusOf(job)], ["user", job.user], ["needs", gpus(job)]]),
  h("p", { class: "hint" }, "Its user and administrators see more."),
];

const ATTEMPTS = [
  ["Attempt", (attempt) => String(attempt.number)],
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

export const job = (state) => {
  const { job: answer, attempts, events, estimates } = state;
  if (!answer || answer.missing) return section("job", "Job", answer?.missing ?? "Loading …");
  const { estimated_start, estimated_finish } = estimates?.rows?.map((row) => row.job).find(({ id }) => id === answer.id) ?? {};
  const known = { ...answer, estimated_start, estimated_finish };
  const own = events.filter((event) => event.job === known.id);
  return [
    h("div", { class: "title", "data-key": "title" },
      h("h2", {}, `Job ${known.id}`, h("span", { class: "soft" }, ` ${known.name ?? ""}`)), actions(known, state.status)),
    h("div", { "data-key": "facts", class: "stack" }, why(known, state), known.command ? allFacts(known) : publicFacts(known)),
    known.command && section("attempts", `Attempts (${count(known.attempts)})`, null,
      table("Attempts", ATTEMPTS, (attempts?.attempts ?? []).map((each) => ({ ...each, key: each.number })))),
    known.command && section("log", "Log", null,
      h("pre", {
        id: "log", "data-key": `log-${known.id}`, "data-own": true, tabindex: 0, "aria-label": `log of job ${known.id}`,
      })),
    own.length > 0 && section("history", "Recent events", null, entries(own, 100)),
  ];
};
