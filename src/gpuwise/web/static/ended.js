// Jobs that have ended, newest first, with their outcomes.
import { h } from "./dom.js";
import { duration, figure, moment } from "./format.js";
import { jobLink, statusOf, userOf } from "./parts.js";
import { state } from "./state.js";
import { arrayName, arrayStates, isSorted, jobTable } from "./tables.js";

const waited = (job) => duration((job.started_at ?? job.ended_at) - job.submitted_at);
const took = (job) => duration(job.ended_at - job.submitted_at);
const outcome = (job) => [statusOf(job), job.why_ended && h("small", {}, job.why_ended)];

const COLUMNS = [
  ["Job", jobLink, "", "job", arrayName],
  ["User", userOf, "text user", "user", ({ job }) => userOf(job)],
  ["Outcome", outcome, "text", "status", ({ array }) => arrayStates(array)],
  ["Final loss", (job) => figure(job.loss), "", "loss"],
  ["Waited", waited, "", "waited"],
  ["Completion time", took, "", "took"],
  ["Device time", (job) => duration(job.gpu_s), "", "gpu_s"],
  ["Suspended", (job) => (job.preemptions ? `${job.preemptions} ×` : "never"), "", "preemptions"],
  ["Ended", (job) => moment(job.ended_at), "", "ended"],
];

export const ended = (limit, array) =>
  jobTable("ended", "Ended", {
    caption: "Jobs that have ended", order: "newest first", columns: COLUMNS, limit, array,
    none: `No ${array ? "task" : "job"} has ended yet.`,
    hint: state.ended?.rows.length > 0 && `${isSorted("ended") ? "" : "Newest first. "}Device time is time × devices × share, over all attempts.`,
  });
