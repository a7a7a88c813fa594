// What buttons and forms do, and the notice when that fails.
import { post, remove } from "./api.js";
import { enter, leave } from "./live.js";
import { pollSoon } from "./poll.js";

const NOTICE_MS = 10_000;
const at = (id) => document.getElementById(id);

let clearing = null;

const notify = (text) => {
  clearTimeout(clearing);
  at("notice").textContent = text;
  at("notice").hidden = !text;
  if (text) clearing = setTimeout(notify, NOTICE_MS, "");
};

const attempt = async (doing, explain = (error) => error.message) => {
  notify("");
  try {
    await doing();
  } catch (error) {
    notify(explain(error));
  }
};

// Asks the user; whether they confirm.
const confirmed = (text, yes) => {
  const dialog = at("ask");
  at("ask-text").textContent = text;
  at("ask-yes").textContent = yes;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
};

const act = async ({ action, job }) => {
  const question = `Cancel job ${job}? It cannot be resumed; its log and checkpoints are kept.`;
  if (action === "cancel" && !(await confirmed(question, "Cancel job"))) return;
  const path = `/v1/jobs/${encodeURIComponent(job)}/${action}`;
  await attempt(() => post(path).then(pollSoon), (error) => `Job ${job}: ${error.message}`);
};

const logIn = (token) =>
  attempt(() => post("/v1/session", { token: token.trim() }).then(enter),
    (error) => (error.status === 401 ? "This token is not valid." : error.message));

const logOut = () => attempt(() => remove("/v1/session").then(leave));

const clicked = (event) => {
  const button = event.target.closest("[data-action]");
  if (button) act(button.dataset);
  if (event.target.closest("#log-out")) logOut();
  if (event.target.closest(".skip")) {
    event.preventDefault();
    at("main").focus();
  }
};

const submitted = (event) => {
  if (event.target.id !== "login") return;
  event.preventDefault();
  logIn(event.target.elements.token.value);
};

export const listenToUser = () => {
  document.addEventListener("click", clicked);
  document.addEventListener("submit", submitted);
};
