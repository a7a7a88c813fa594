// Events, newest first.
import { h } from "./dom.js";
import { moment } from "./format.js";
import { empty, jobHref, section } from "./parts.js";

const entry = (event) =>
  h("li", { "data-key": `event-${event.seq}` },
    moment(event.at),
    h("span", { class: "what" },
      event.job && [h("a", { href: jobHref(event.job) }, `job ${event.job}`), " "],
      event.text || event.kind));

export const entries = (events, most) =>
  events.length
    ? h("ol", { class: "feed" }, events.slice(-most).reverse().map(entry))
    : empty("No recent events. Those of your jobs appear here as they happen.");

export const feed = ({ events }, most = 200) =>
  section("events", "Events", events.length > 0 && "Newest first.", entries(events, most));
