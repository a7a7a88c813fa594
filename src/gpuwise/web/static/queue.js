// Running jobs, and waiting jobs with the reason.
import { duration, figure, gpus, moment } from "./format.js";
import { h } from "./dom.js";
import { ON_DEVICES, empty, jobLink, progress, section, statusOf, table } from "./parts.js";

const MOST_ROWS = 200;

const speed = (job) => (job.samples_per_s === null ? "–" : `${figure(job.samples_per_s)} samples/s`);
const lossOf = (job) => figure(job.loss);

const RUNNING = [
  ["Job", jobLink],
  ["Status", statusOf],
  ["Where", (job) => job.placement || "–", "text"],
  ["Progress", progress, "text"],
  ["Loss", lossOf],
  ["Speed", speed],
  ["First start", (job) => moment(job.started_at)],
  ["Finish, estimated", (job) => moment(job.estimated_finish)],
];

const WAITING = [
  ["Job", jobLink],
  ["Status", statusOf],
  ["Needs", gpus],
  ["Run time, forecast", (job) => duration(job.duration_s)],
  ["Progress", progress, "text"],
  ["Submitted", (job) => moment(job.submitted_at)],
  ["Start, estimated", (job) => moment(job.estimated_start)],
  ["Why it waits", (job) => job.why || "–", "text wide"],
];

const rows = (caption, columns, jobs) => [
  table(caption, columns, jobs.slice(0, MOST_ROWS)),
  jobs.length > MOST_ROWS && h("p", { class: "hint" }, `and ${jobs.length - MOST_ROWS} more`),
];

export const queue = ({ queue: answer }) => {
  if (!answer) return section("queue", "Queue", "Loading …");
  const running = answer.jobs.filter((job) => ON_DEVICES.includes(job.status));
  const waiting = answer.jobs.filter((job) => !ON_DEVICES.includes(job.status));
  return [
    section("running", `Running (${running.length})`, null,
      running.length ? rows("Running jobs", RUNNING, running) : empty("No job runs.")),
    section("waiting", `Waiting (${waiting.length})`, null,
      waiting.length ? rows("Waiting jobs, in the order in which they are expected to start", WAITING, waiting)
        : empty("No job waits.")),
  ];
};
