// The devices and the jobs on them.
import { h, s } from "./dom.js";
import { bytes, percent } from "./format.js";
import { colour, jobLink, section } from "./parts.js";

const MOST_SHARES = 6; // that are listed of a device

const bar = (device) => {
  let left = 0;
  const parts = device.jobs.map((job) => {
    const part = s("rect", {
      class: colour(job.id), x: `${100 * left}%`, width: `${100 * job.frac}%`, height: "100%",
    });
    left += job.frac;
    return part;
  });
  return s("svg", { class: "shares", "aria-hidden": "true" }, parts);
};

const resident = (job) =>
  h("li", {},
    job.id == null
      ? h("span", {}, h("span", { class: "swatch other", "aria-hidden": "true" }), job.user ? `a job of ${job.user}` : "another user's job")
      : jobLink(job),
    h("span", {}, percent(job.frac)));

const residents = ({ jobs }) => [
  jobs.slice(0, MOST_SHARES).map(resident),
  jobs.length > MOST_SHARES && h("li", {},
    h("span", {}, `${jobs.length - MOST_SHARES} others`),
    h("span", {}, percent(jobs.slice(MOST_SHARES).reduce((sum, { frac }) => sum + frac, 0)))),
];

const measured = (device) => [
  Number.isFinite(device.util_frac) && `${percent(device.util_frac)} busy`,
  Number.isFinite(device.memory_used_bytes) && `${bytes(device.memory_used_bytes)} of ${bytes(device.memory_bytes)} used`,
  Number.isFinite(device.power_w) && `${Math.round(device.power_w)} W`,
  Number.isFinite(device.temperature_c) && `${Math.round(device.temperature_c)} °C`,
].filter((text) => text).join(" · ");

const card = (device) =>
  h("article", { class: device.lost ? "device lost" : "device", "data-key": `device-${device.index}` },
    h("h4", {}, `Device ${device.index}`),
    bar(device),
    h("ul", {}, residents(device),
      device.lost && h("li", { class: "free" }, "lost: no job can run on it"),
      device.claimed && h("li", { class: "free" }, "used by foreign processes"),
      device.free_frac > 0 && h("li", { class: "free" }, h("span", {}, "free"), h("span", {}, percent(device.free_frac)))),
    h("p", { class: "measured" }, measured(device)));

const node = (each) =>
  h("div", { "data-key": `node-${each.name}` },
    h("h3", {}, each.name,
      h("span", { class: "soft" }, ` ${each.devices.length} × ${each.gpu_type}${each.lost ? ", lost" : ""}${each.drained ? ", drained" : ""}`),
      each.stand_in && h("span", { class: "warn" }, "CPU stand-ins, not GPUs")),
    h("div", { class: "devices" }, each.devices.map(card)));

export const cluster = ({ nodes: answer }) => {
  if (!answer) return section("cluster", "Cluster", "Loading …");
  const standIns = answer.nodes.some((each) => each.stand_in);
  const hint = standIns && "CPU cores stand in for GPUs here: all works as with GPUs, except for speed.";
  return section("cluster", "Cluster", hint, answer.nodes.map(node));
};
