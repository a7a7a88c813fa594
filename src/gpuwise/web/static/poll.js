// The lists that the view needs, read again after events, at intervals otherwise, and at most once per second.
import { ApiError, get, now } from "./api.js";
import { changed, state } from "./state.js";

const AT_MOST_EVERY_MS = 1000;
const BUSY_MS = 2000; // progress is not an event, so the lists are read while there are jobs
const IDLE_MS = 10_000;
const MISSING = [403, 404]; // not there, or not for this user

let wanted = () => ({});
const known = new Set(); // the lists that were read
let readAt = -Infinity;
let dueAt = 0;
let wake = () => {};

const within = (ms) => {
  dueAt = Math.min(dueAt, readAt + ms);
  wake();
};

// Reads the lists again soon.
export const pollSoon = () => within(AT_MOST_EVERY_MS);

// Reads the lists again at once.
export const pollNow = () => {
  readAt = -Infinity;
  pollSoon();
};

// Gives the function that names the lists that are needed, with their paths, and reads them at once.
export const want = (lists) => {
  wanted = lists;
  pollNow();
};

export const forget = () => {
  for (const name of known) delete state[name];
};

const read = async (name, path) => {
  const answer = await get(path).catch((error) => {
    if (error instanceof ApiError && MISSING.includes(error.status)) return { missing: error.message };
    throw error;
  });
  known.add(name);
  if (wanted()[name] === path) state[name] = answer; // else the user has moved on
};

const poll = async (onRefused) => {
  readAt = performance.now();
  dueAt = readAt + IDLE_MS;
  const asked = wanted();
  try {
    await Promise.all(Object.entries(asked).map(([name, path]) => read(name, path)));
    if (Object.keys(wanted()).some((name) => !(name in asked))) pollNow(); // the answers say that there is more
    Object.assign(state, { asOf: now(), trouble: "" });
  } catch (error) {
    if (error.status === 401) onRefused();
    else if (error instanceof ApiError) state.trouble = error.message;
  }
  changed();
  within(Object.keys(state.status?.counts ?? {}).length ? BUSY_MS : IDLE_MS);
};

// Polls while the page is visible and connected.
export const startPolling = async (onRefused) => {
  document.addEventListener("visibilitychange", pollSoon);
  for (;;) {
    const woken = new Promise((resolve) => { wake = resolve; });
    const asleep = document.hidden || state.connection !== "live";
    const left = dueAt - performance.now();
    if (asleep) await woken;
    else if (left > 0) await Promise.race([woken, new Promise((resolve) => setTimeout(resolve, left))]);
    else await poll(onRefused);
  }
};
