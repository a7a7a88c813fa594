// What is around every view: the head, the state of the connection, and the form for the token.
import { h } from "./dom.js";
import { count, duration } from "./format.js";
import { now } from "./api.js";
import { ON_DEVICES, facts } from "./parts.js";
import { TABS } from "./views.js";

const tab = (address) => ([href, text]) =>
  h("a", { "data-key": href, href, "aria-current": href === address ? "page" : null }, text);

const summary = ({ status }) => {
  if (!status) return null;
  const all = Object.entries(status.counts);
  const jobsIn = (entries) => entries.reduce((sum, [, jobs]) => sum + jobs, 0);
  const running = jobsIn(all.filter(([name]) => ON_DEVICES.includes(name)));
  return facts([
    ["running", count(running)],
    ["waiting", count(jobsIn(all) - running)],
    ["policy", status.policy],
    ["placement", status.placement],
    ["up for", duration(status.uptime_s)],
    ["gpuwise", status.version],
  ]);
};

const DOTS = { connecting: "connecting", live: "live", lost: "no connection", login: "not logged in" };

export const head = (state, address) => [
  h("div", { class: "title" }, h("h1", {}, h("a", { href: "#/" }, "gpuwise")),
    h("div", { class: "actions" },
      h("span", { class: `link ${state.connection}` }, DOTS[state.connection]),
      state.connection !== "login" && state.status && [
        h("span", { class: "soft" }, `${state.status.user}, ${state.status.role}`),
        h("button", { type: "button", id: "log-out" }, "Log out"),
      ])),
  state.connection !== "login" && h("nav", { "aria-label": "views" }, TABS.map(tab(address))),
  state.connection !== "login" && summary(state),
];

export const bannerText = (state) => {
  if (state.connection === "lost") {
    const old = state.asOf === null ? "" : ` The data shown is ${duration(now() - state.asOf)} old.`;
    return `${state.trouble || "The connection to the server is lost"}; trying again.${old}`;
  }
  return state.trouble || state.status?.trouble || "";
};

export const login = () =>
  h("form", { id: "login", "data-key": "login" },
    h("h2", {}, "Log in"),
    h("p", { class: "hint" }, "Run ", h("code", {}, "gpuwise page"), " for a link that logs you in, or enter a token: yours is in the file ",
      h("code", {}, "token"), " in the state folder of ", h("code", {}, "gpuwise up"), ", or ask an administrator for one."),
    h("label", { for: "token" }, "Token"),
    h("input", {
      id: "token", name: "token", type: "password", autocomplete: "current-password", required: true, spellcheck: "false",
    }),
    h("button", { type: "submit" }, "Log in"));
