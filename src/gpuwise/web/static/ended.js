// Jobs that have ended, newest first, with their outcomes.
import { h } from "./dom.js";
import { duration, figure, moment } from "./format.js";
import { empty, jobLink, section, statusOf, table } from "./parts.js";

const waited = (job) => duration((job.started_at ?? job.ended_at) - job.submitted_at);
const took = (job) => duration(job.ended_at - job.submitted_at);
const outcome = (job) => [statusOf(job), job.why_ended && h("small", {}, job.why_ended)];

const COLUMNS = [
  ["Job", jobLink],
  ["Outcome", outcome, "text"],
  ["Final loss", (job) => figure(job.loss)],
  ["Waited", waited],
  ["Completion time", took],
  ["Device time", (job) => duration(job.gpu_s)],
  ["Suspended", (job) => (job.preemptions ? `${job.preemptions} ×` : "never")],
  ["Ended", (job) => moment(job.ended_at)],
];

export const ended = ({ ended: answer }, most = 200) => {
  if (!answer) return section("ended", "Ended", "Loading …");
  const jobs = answer.jobs.toSorted((a, b) => b.ended_at - a.ended_at).slice(0, most);
  return section("ended", "Ended", "Newest first. Device time is time × devices × share, over all attempts.",
    jobs.length ? table("Jobs that have ended", COLUMNS, jobs) : empty("No job has ended yet."));
};
