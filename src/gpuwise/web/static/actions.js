// What buttons and forms ask for, and what is said when it cannot be done.
import { post, remove } from "./api.js";
import { enter, leave } from "./live.js";
import { pollSoon } from "./poll.js";

const NOTICE_MS = 10_000;
const at = (id) => document.getElementById(id);

let clearing = null;

const complain = (text) => {
  clearTimeout(clearing);
  at("notice").textContent = text;
  at("notice").hidden = !text;
  if (text) clearing = setTimeout(complain, NOTICE_MS, "");
};

const attempt = async (doing, explain = (error) => error.message) => {
  complain("");
  try {
    await doing();
  } catch (error) {
    complain(explain(error));
  }
};

// Whether the user, asked, says yes.
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
  const question = `Cancel job ${job}? It is ended for good; its log and checkpoints are kept.`;
  if (action === "cancel" && !(await confirmed(question, "Cancel job"))) return;
  const path = `/v1/jobs/${encodeURIComponent(job)}/${action}`;
  await attempt(() => post(path).then(pollSoon), (error) => `Job ${job}: ${error.message}`);
};

const logIn = (token) =>
  attempt(() => post("/v1/session", { token: token.trim() }).then(enter),
    (error) => (error.status === 401 ? "The server does not know this token." : error.message));

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
