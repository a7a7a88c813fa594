// What buttons and forms do, and the notice when that fails.
import { endSession, get, keepSession, onOtherSession, openSession, post, session } from "./api.js";
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

const KEPT = "cannot be resumed; logs and checkpoints are kept.";

const act = async ({ action, job, all }) => {
  const what = all ? `array ${job}` : `job ${job}`;
  const question = all ? `Cancel all tasks of ${what} that have not ended? They ${KEPT}` : `Cancel ${what}? It ${KEPT}`;
  if (action === "cancel" && !(await confirmed(question, all ? "Cancel all" : "Cancel job"))) return;
  const path = `/v1/jobs/${encodeURIComponent(job)}/${action}`;
  await attempt(() => post(path).then(pollSoon), (error) => `${what[0].toUpperCase()}${what.slice(1)}: ${error.message}`);
};

// -- log-in -----------------------------------------------------------------------------------------------------------

const ended = (error) => { // by its expiry, or from another tab
  if (error.status !== 401) throw error;
};

const use = (secret) => {
  keepSession(secret);
  leave();
  enter();
};

const logIn = (token) =>
  attempt(async () => use((await openSession({ token: token.trim() })).secret),
    (error) => (error.status === 401 ? "This token is not valid." : error.message));

const logOut = () => attempt(async () => {
  await endSession(session()).catch(ended);
  use(null);
});

// A link of another user, such as one that somebody sent, must not take the place of a session unnoticed.
const replaces = async (user) => {
  const before = session() ? await get("/v1/status").catch(ended) : undefined;
  if (!before) return true;
  const question = `This link logs in as ${user}. You are logged in as ${before.user}.`;
  if (before.user !== user && !(await confirmed(question, `Log in as ${user}`))) return false;
  await endSession(session());
  return true;
};

// Logs in by the code in the address, if there is one, and takes it out of the address.
export const followLink = async () => {
  const [, code] = /^#login=([\w-]+)$/.exec(location.hash) ?? [];
  if (!code) return;
  location.replace("#/");
  await attempt(async () => {
    const { secret, user } = await openSession({ code });
    if (await replaces(user)) use(secret);
    else await endSession(secret);
  });
};

// -- events of the page -----------------------------------------------------------------------------------------------

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
  addEventListener("hashchange", followLink);
  onOtherSession(() => use(session()));
};
