// Running jobs, and waiting jobs with the reason.
import { h } from "./dom.js";
import { duration, figure, gpus, moment } from "./format.js";
import { jobLink, progress, speed, statusOf, userOf } from "./parts.js";
import { state } from "./state.js";
import { arrayName, arrayStates, jobTable } from "./tables.js";

const ofFirst = (cell) => ({ job }) => cell(job);
const statesOf = ({ array }) => arrayStates(array);

const RUNNING = [
  ["Job", jobLink, "", "job", arrayName],
  ["User", userOf, "text user", "user", ofFirst(userOf)],
  ["Status", statusOf, "text", "status", statesOf],
  ["Where", (job) => job.placement || "–", "text", "where"],
  ["Progress", progress, "text", "progress"],
  ["Loss", (job) => figure(job.loss), "", "loss"],
  ["Speed", speed, "brief", "speed"],
  ["First start", (job) => moment(job.started_at), "", "started"],
  ["Finish, estimated", (job) => moment(job.estimated_finish), "", "finish"],
];

const forecast = (job) => duration(job.duration_s);
const submitted = (job) => moment(job.submitted_at);
const start = (job) => moment(job.estimated_start);
const why = (job) => job.why || (job.details ? "–" : h("span", { class: "soft" }, "shown to its user"));

// What is shown of an array that waits is true of its first task.
const WAITING = [
  ["Job", jobLink, "", "job", arrayName],
  ["User", userOf, "text user", "user", ofFirst(userOf)],
  ["Status", statusOf, "text", "status", statesOf],
  ["Needs", gpus, "brief", "gpus", ofFirst(gpus)],
  ["Run time, forecast", forecast, "", "duration", ofFirst(forecast)],
  ["Progress", progress, "text", "progress"],
  ["Submitted", submitted, "", "submitted", ofFirst(submitted)],
  ["Start, estimated", start, "", "start", ofFirst(start)],
  ["Why it waits", why, "text wide", null, ofFirst(why)],
];

// Without any job: how to submit one.
const noneRuns = ({ running, waiting, status }) => [
  "No job runs.",
  !running?.total && !waiting?.total && status && status.role !== "viewer" && [
    " Submit one: ", h("code", {}, "gpuwise submit --duration 10m -- python train.py")],
];

export const queue = (limit, array) => [
  jobTable("running", "Running", {
    caption: "Running jobs", columns: RUNNING, limit, array, none: array ? "No task runs." : noneRuns(state),
  }),
  jobTable("waiting", "Waiting", {
    caption: "Waiting jobs", order: "in the order in which they are expected to start", columns: WAITING, limit, array,
    none: array ? "No task waits." : "No job waits.",
  }),
];
